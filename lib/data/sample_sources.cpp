#include "data/sample_sources.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

using ColumnPointer = std::shared_ptr<const Column>;
using Shards = std::vector<std::vector<ColumnPointer>>;

constexpr const char* kStageAnew = "stage the dataset again";

/// Array number `array` of all shards as one. Throws data_error when the shards disagree on its rows' shape.
ColumnPointer joined(const Shards& shards, std::size_t array, const std::string& subject) {
  std::vector<ColumnPointer> parts;
  for (const auto& shard : shards) {
    const ColumnPointer& part = shard.at(array);
    if (part->type() != shards[0][array]->type() || part->row_shape() != shards[0][array]->row_shape())
      throw data_error("has shards whose arrays differ in type or shape", subject, kStageAnew);
    parts.push_back(part);
  }
  return JoinedColumn::of(std::move(parts));
}

void gather_rows(const Column& column, std::span<const std::int64_t> ids, HostArray& out) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(ids.size())};
  shape.insert(shape.end(), column.row_shape().begin(), column.row_shape().end());
  out.reset(column.type(), shape);
  column.gather(ids, static_cast<std::byte*>(out.data()));
}

/// Images and tables.
class DenseSource final : public SampleSource {
 public:
  DenseSource(ColumnPointer inputs, ColumnPointer targets)
      : inputs_(std::move(inputs)), targets_(std::move(targets)) {}
  std::int64_t samples() const override { return targets_->rows(); }
  void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const override {
    gather_rows(*inputs_, ids, inputs);
    gather_rows(*targets_, ids, targets);
  }
  void gather_targets(std::span<const std::int64_t> ids, HostArray& targets) const override {
    gather_rows(*targets_, ids, targets);
  }

 private:
  ColumnPointer inputs_;
  ColumnPointer targets_;
};

/// Sequences of different lengths: tokens [total] int32 and where each begins.
class Sequences {
 public:
  Sequences(const Shards& shards, std::size_t tokens, std::size_t offsets, std::int64_t longest,
            const std::string& subject)
      : tokens_(joined(shards, tokens, subject)), longest_(longest) {
    std::int64_t base = 0;
    begins_.push_back(0);
    for (const auto& shard : shards) {
      const auto local = read_whole<std::int64_t>(*shard[offsets]);
      const bool ordered = std::is_sorted(local.begin(), local.end());
      if (local.empty() || local.front() != 0 || local.back() != shard[tokens]->rows() || !ordered)
        throw data_error("has offsets that do not fit its tokens", subject, kStageAnew);
      for (std::size_t i = 1; i < local.size(); ++i) begins_.push_back(base + local[i]);
      base += local.back();
    }
  }

  std::int64_t count() const { return static_cast<std::int64_t>(begins_.size()) - 1; }

  void add_lengths(std::vector<std::int64_t>& sums) const {
    for (std::int64_t id = 0; id < count(); ++id) sums[static_cast<std::size_t>(id)] += length(id);
  }

  /// out: int32 [n, T], T the longest of these (at least 1), the rest filled with id 0.
  void gather(std::span<const std::int64_t> ids, HostArray& out) const {
    std::int64_t width = 1;
    for (const std::int64_t id : ids) width = std::max(width, length(id));
    out.reset(ElementType::int32, {static_cast<std::int64_t>(ids.size()), width});
    const auto values = out.as<std::int32_t>();
    std::fill(values.begin(), values.end(), 0);
    for (std::size_t row = 0; row < ids.size(); ++row)
      tokens_->read(begins_[ids[row]], length(ids[row]),
                    reinterpret_cast<std::byte*>(values.data() + row * static_cast<std::size_t>(width)));
  }

 private:
  std::int64_t length(std::int64_t id) const { return std::min(begins_[id + 1] - begins_[id], longest_); }
  ColumnPointer tokens_;
  std::vector<std::int64_t> begins_;
  std::int64_t longest_;
};

class TextSource final : public SampleSource {
 public:
  TextSource(Sequences tokens, ColumnPointer targets)
      : tokens_(std::move(tokens)), targets_(std::move(targets)) {}
  std::int64_t samples() const override { return targets_->rows(); }
  std::vector<std::int64_t> lengths() const override {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples()), 0);
    tokens_.add_lengths(lengths);
    return lengths;
  }
  void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const override {
    tokens_.gather(ids, inputs);
    gather_rows(*targets_, ids, targets);
  }
  void gather_targets(std::span<const std::int64_t> ids, HostArray& targets) const override {
    gather_rows(*targets_, ids, targets);
  }

 private:
  Sequences tokens_;
  ColumnPointer targets_;
};

class PairSource final : public SampleSource {
 public:
  PairSource(Sequences source, Sequences target) : source_(std::move(source)), target_(std::move(target)) {}
  std::int64_t samples() const override { return source_.count(); }
  std::vector<std::int64_t> lengths() const override {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples()), 0);
    source_.add_lengths(lengths);
    target_.add_lengths(lengths);
    return lengths;
  }
  void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const override {
    source_.gather(ids, inputs);
    target_.gather(ids, targets);
  }

 private:
  Sequences source_;
  Sequences target_;
};

/// Block i reads tokens [iT, iT + T) and predicts [iT + 1, iT + T + 1).
class BlockSource final : public SampleSource {
 public:
  BlockSource(ColumnPointer tokens, std::int64_t length) : tokens_(std::move(tokens)), length_(length) {}
  std::int64_t samples() const override { return std::max<std::int64_t>(0, (tokens_->rows() - 1) / length_); }
  void gather(std::span<const std::int64_t> ids, HostArray& inputs, HostArray& targets) const override {
    const auto n = static_cast<std::int64_t>(ids.size());
    inputs.reset(ElementType::int32, {n, length_});
    targets.reset(ElementType::int32, {n, length_});
    auto* in = static_cast<std::byte*>(inputs.data());
    auto* out = static_cast<std::byte*>(targets.data());
    const std::size_t bytes = static_cast<std::size_t>(length_) * element_bytes(ElementType::int32);
    for (const std::int64_t id : ids) {
      tokens_->read(id * length_, length_, in);
      tokens_->read(id * length_ + 1, length_, out);
      in += bytes;
      out += bytes;
    }
  }

 private:
  ColumnPointer tokens_;
  std::int64_t length_;
};

void require_equal_rows(std::int64_t inputs, std::int64_t targets, const std::string& subject) {
  if (inputs != targets)
    throw data_error("has " + std::to_string(inputs) + " inputs but " + std::to_string(targets) + " targets",
                     subject, kStageAnew);
}

void require_targets(const Column& targets, const std::vector<std::int64_t>& shape,
                     const std::string& subject) {
  const auto there = element_count(targets.row_shape());
  const auto count = element_count(shape);
  if (targets.row_shape() == shape) return;
  if (there == count && targets.row_shape().size() <= 1 && shape.size() <= 1) return;
  throw data_error(
      "has " + std::to_string(there) + " targets per sample, and dataset.json names " + std::to_string(count),
      subject,
      "write /targets as [n], those of a regression as [n, K] with their K names under targets in "
      "dataset.json, or a class for each place as [n, H, W] with target_shape");
}

}  // namespace

SampleLayout layout_of_task(std::string_view task) {
  if (task == "text_classification") return SampleLayout::text;
  if (task == "translation") return SampleLayout::pairs;
  if (task == "language_modelling") return SampleLayout::blocks;
  return SampleLayout::dense;
}

std::vector<ArrayRequest> arrays_of_task(std::string_view task) {
  const std::vector<ElementType> tokens = {ElementType::int32};
  const std::vector<ElementType> offsets = {ElementType::int64};
  switch (layout_of_task(task)) {
    case SampleLayout::text:
      return {{"/tokens", tokens}, {"/offsets", offsets}, {"/targets", {ElementType::int64}}};
    case SampleLayout::pairs:
      return {{"/source_tokens", tokens},
              {"/source_offsets", offsets},
              {"/target_tokens", tokens},
              {"/target_offsets", offsets}};
    case SampleLayout::blocks:
      return {{"/tokens", tokens}};
    case SampleLayout::dense:
      break;
  }
  return {{"/inputs", {ElementType::float32, ElementType::uint8}},
          {"/targets", {task == "regression" ? ElementType::float32 : ElementType::int64}}};
}

std::shared_ptr<const SampleSource> make_source(std::string_view task, const Shards& shards,
                                                const std::vector<std::int64_t>& sample_shape,
                                                const std::string& subject,
                                                const std::vector<std::int64_t>& target_shape) {
  const std::int64_t longest = sample_shape.empty() ? std::int64_t{1} << 40 : sample_shape[0];
  switch (layout_of_task(task)) {
    case SampleLayout::text: {
      Sequences tokens(shards, 0, 1, longest, subject);
      const ColumnPointer targets = joined(shards, 2, subject);
      require_equal_rows(tokens.count(), targets->rows(), subject);
      return std::make_shared<TextSource>(std::move(tokens), targets);
    }
    case SampleLayout::pairs: {
      Sequences source(shards, 0, 1, longest, subject);
      Sequences target(shards, 2, 3, longest, subject);
      require_equal_rows(source.count(), target.count(), subject);
      return std::make_shared<PairSource>(std::move(source), std::move(target));
    }
    case SampleLayout::blocks:
      if (sample_shape.empty())
        throw data_error("has no shape [T], the length of a block", subject, kStageAnew);
      return std::make_shared<BlockSource>(joined(shards, 0, subject), longest);
    case SampleLayout::dense:
      break;
  }
  const ColumnPointer inputs = joined(shards, 0, subject);
  const ColumnPointer targets = joined(shards, 1, subject);
  require_equal_rows(inputs->rows(), targets->rows(), subject);
  require_targets(*targets, target_shape, subject);
  if (inputs->row_shape() != sample_shape)
    throw data_error("has inputs of another shape than dataset.json says", subject, kStageAnew);
  return std::make_shared<DenseSource>(inputs, targets);
}

}  // namespace dtrain::data
