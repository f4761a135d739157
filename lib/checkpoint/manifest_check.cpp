#include "checkpoint/manifest_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;  // counts that a double holds, too
constexpr std::int64_t kMostPieces = 1 << 24;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::size_t kMostSlices = 4096;
constexpr std::size_t kMostDims = 64;
constexpr std::size_t kMostTied = 100'000;
constexpr std::size_t kLongestName = 1000;
constexpr std::size_t kLongestGivenName = 8192;

class Check {
 public:
  explicit Check(const std::string& file) : file_(file) {}
  void operator()(bool good, const std::string& problem) const {
    if (!good) throw checkpoint_error(problem, file_, "take another checkpoint");
  }

 private:
  const std::string& file_;
};

bool is_count(std::int64_t value) { return value >= 0 && value <= kMostSteps; }
bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

void check_position(const CheckpointInfo& info, const Check& check) {
  check(is_count(info.step) && is_count(info.epoch) && is_count(info.position_samples),
        fmt::format("stands at step {} and sample {} of epoch {}, which cannot be", info.step,
                    info.position_samples, info.epoch));
  check(info.epoch <= info.step && (info.epoch >= 1) == (info.step >= 1),
        fmt::format("stands at step {} in epoch {}, and each epoch has a step", info.step, info.epoch));
  const auto train = info.identity.samples.find("train");
  check(train == info.identity.samples.end() || info.position_samples <= train->second,
        fmt::format("stands at sample {} of an epoch, which has fewer", info.position_samples));
  for (const auto& [split, samples] : info.identity.samples)
    check(is_count(samples), fmt::format("counts {} samples in a split", samples));
  check(info.total_steps == 0 || (is_count(info.total_steps) && info.total_steps >= info.step),
        fmt::format("has done {} of {} steps", info.step, info.total_steps));
  check(info.best.step >= 0 && info.best.step <= info.step,
        fmt::format("stands at step {}, and its best is of step {}", info.step, info.best.step));
}

void check_sums(const CheckpointInfo& info, const Check& check) {
  const auto& so_far = info.so_far;
  check(is_amount(so_far.weight) && is_amount(so_far.correct) && is_amount(so_far.counted) &&
            is_amount(so_far.train_time_s) && is_amount(so_far.samples) && is_amount(so_far.learning_rate) &&
            is_amount(so_far.virtual_time_s) && std::ranges::all_of(so_far.staleness, is_count),
        "has sums of an epoch that are negative or no numbers");
  check(so_far.correct <= so_far.counted, "has more samples that are right than samples");
  const auto& scale = info.loss_scale;
  check(is_amount(scale.scale) && is_count(scale.good_steps) && std::abs(scale.left_out) <= kMostSteps,
        "has a loss scale that cannot be");
  check(info.micro_batches >= 1 && info.micro_batches <= kMostPieces,
        fmt::format("cuts its steps into {} micro-batches", info.micro_batches));
}

/// What new data are scaled by.
void check_transformations(const Transformations& transformations, const Check& check) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const auto fits = [](double value) { return std::abs(value) <= kMost; };
  const auto divides = [](double value) { return value > 0 && std::isfinite(1 / value) && value <= kMost; };
  check(std::ranges::all_of(transformations.mean, fits) &&
            std::ranges::all_of(transformations.std_dev, divides),
        "has a mean or a deviation of the training's images that cannot be");
  for (const auto& column : transformations.columns)
    check(fits(column.filled_with) && fits(column.shift) && divides(column.scale),
          fmt::format("has a column {} whose numbers were scaled in a way that cannot be",
                      printable(column.name, 100)));
  for (const auto& target : transformations.targets)
    check(fits(target.shift) && divides(target.scale),
          "has a target that was scaled in a way that cannot be");
}

bool is_name(std::string_view name) {
  const auto good = [](char letter) { return static_cast<unsigned char>(letter) > 0x20 && letter != 0x7F; };
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, good);
}

/// What the user has named: a model by its file, a tensor by its place in a module.
bool is_given_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestGivenName && name.find('\0') == std::string_view::npos;
}

void check_files(const Manifest& manifest, const Check& check) {
  std::set<std::string_view> names;
  for (const FileEntry& file : manifest.files) {
    check(is_name(file.file) && names.insert(file.file).second,
          "lists a file twice, or under a name that cannot be one");
    const bool hash =
        file.sha256.size() == 64 && file.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
    check(file.bytes >= 0 && hash, "lists a file without its size and SHA-256");
  }
}

bool overlap(const SliceEntry& one, const SliceEntry& other) {
  for (std::size_t d = 0; d < one.shape.size(); ++d) {
    if (one.offset[d] >= other.offset[d] + other.shape[d] || other.offset[d] >= one.offset[d] + one.shape[d])
      return false;
  }
  return true;
}

void check_slices(const TensorEntry& tensor, const std::set<std::string_view>& files, std::int64_t most_bytes,
                  const Check& check) {
  check(is_name(tensor.dtype), fmt::format("has a tensor {} of no type", tensor.name));
  const auto item = element_bytes(tensor.dtype);
  const auto bytes = checked_bytes(tensor.shape, item, kMostBytes);
  check(bytes && *bytes <= most_bytes && tensor.shape.size() <= kMostDims,
        fmt::format("has a tensor {} whose shape cannot be", tensor.name));
  const auto odd = fmt::format("has slices of {} that do not cover each of its elements once", tensor.name);
  check(!tensor.slices.empty() && tensor.slices.size() <= kMostSlices, odd);
  std::int64_t covered = 0;
  for (const SliceEntry& slice : tensor.slices) {
    check(slice.offset.size() == tensor.shape.size() && slice.shape.size() == tensor.shape.size(), odd);
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      check(slice.shape[d] >= 0 && slice.shape[d] <= tensor.shape[d] && slice.offset[d] >= 0 &&
                slice.offset[d] <= tensor.shape[d] - slice.shape[d],
            odd);
    }
    covered += *checked_bytes(slice.shape, item);  // at most kMostSlices times the tensor
    check(covered <= *bytes, odd);
    check(slice.dataset.empty() || is_given_name(slice.dataset),
          fmt::format("has a slice of {} under a name that cannot be one", tensor.name));
    check(files.contains(slice.file),
          fmt::format("has a slice of {} in a file that it does not list", tensor.name));
  }
  check(covered == *bytes, odd);
  for (std::size_t i = 0; i < tensor.slices.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) check(!overlap(tensor.slices[i], tensor.slices[k]), odd);
  }
}

void check_tensors(const Manifest& manifest, const Check& check) {
  std::set<std::string_view> files;
  std::int64_t most_bytes = 0;  // of a tensor: its parts lie in the files as they are
  for (const FileEntry& file : manifest.files) {
    files.insert(file.file);
    most_bytes += std::min(file.bytes, kMostBytes - most_bytes);
  }
  std::set<std::string_view> names;
  std::int64_t left = most_bytes;
  for (const TensorEntry& tensor : manifest.tensors) {
    check(is_given_name(tensor.name) && names.insert(tensor.name).second,
          "has two tensors of one name, or one under a name that cannot be one");
    check_slices(tensor, files, most_bytes, check);
    check(tensor.bytes() <= left, "has tensors that are larger than its files together");
    left -= tensor.bytes();
  }
  check(manifest.info.tied.size() <= kMostTied, "has more tied weights than a model has");
  for (const auto& [other, name] : manifest.info.tied)
    check(is_given_name(other) && !names.contains("model/" + other),
          "has a tied weight under a name that is another's, or that cannot be one");
}

}  // namespace

void check_sense(const Manifest& manifest, const std::string& file) {
  const Check check(file);
  check(is_given_name(manifest.info.model) && manifest.info.model.find('/') == std::string::npos,
        "names no model");
  check_position(manifest.info, check);
  check_sums(manifest.info, check);
  if (manifest.info.transformations) check_transformations(*manifest.info.transformations, check);
  check_files(manifest, check);
  check_tensors(manifest, check);
}

}  // namespace dtrain::checkpoint
