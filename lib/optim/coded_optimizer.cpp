#include "optim/coded_optimizer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "kernels/compression/block_codes.hpp"
#include "optim/adam.hpp"

namespace dtrain::optim {
namespace {

using kernels::kCodeBlock;
using kernels::Levels;

constexpr auto kBlock = static_cast<std::int64_t>(kCodeBlock);
using BlockValues = std::array<float, kCodeBlock>;

/// What a held part has of a parameter.
struct Piece {
  Range range;  // of the flat parameters
  double weight_decay = 0.0;
  std::int64_t place = 0;  // in the held parts, one behind the other
  bool coded = false;
  std::int64_t begin = 0;  // of its codes, or of its full numbers
  std::int64_t block = 0;  // its first
};

/// One state tensor: codes and scales of large parameters, full numbers of small ones.
class CodedState {
 public:
  CodedState(Levels levels, std::int64_t codes, std::int64_t blocks, std::int64_t full)
      : levels_(levels),
        codes_(at::empty({codes}, at::kByte)),
        scales_(at::zeros({blocks}, at::kFloat)),
        full_(at::zeros({full}, at::kFloat)) {
    encode_zeros();
  }

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(codes_.nbytes() + scales_.nbytes() + full_.nbytes());
  }

  float* full(const Piece& piece) const { return full_.mutable_data_ptr<float>() + piece.begin; }

  /// Block `index` of a piece, of `count` numbers.
  void decode(const Piece& piece, std::int64_t index, std::int64_t count, float* values) const {
    kernels::decode_block(values, codes_of(piece, index), scale_of(piece, index),
                          static_cast<std::size_t>(count), levels_);
  }
  void encode(const Piece& piece, std::int64_t index, std::int64_t count, const float* values) const {
    scale_of(piece, index) =
        kernels::encode_block(codes_of(piece, index), values, static_cast<std::size_t>(count), levels_);
  }

 private:
  std::uint8_t* codes_of(const Piece& piece, std::int64_t index) const {
    return codes_.mutable_data_ptr<std::uint8_t>() + piece.begin + index * kBlock;
  }
  float& scale_of(const Piece& piece, std::int64_t index) const {
    return scales_.mutable_data_ptr<float>()[piece.block + index];
  }
  void encode_zeros() const {
    const BlockValues zeros{};
    for (std::int64_t begin = 0; begin < codes_.numel(); begin += kBlock) {
      const auto count = std::min(kBlock, codes_.numel() - begin);
      kernels::encode_block(codes_.mutable_data_ptr<std::uint8_t>() + begin, zeros.data(),
                            static_cast<std::size_t>(count), levels_);
    }
  }

  Levels levels_;
  at::Tensor codes_;
  at::Tensor scales_;
  at::Tensor full_;
};

std::int64_t blocks_of(std::int64_t count) { return (count + kBlock - 1) / kBlock; }

class CodedOptimizer final : public Optimizer {
 public:
  CodedOptimizer(OptimizerConfig config, std::int64_t count, const std::vector<ParameterRange>& ranges,
                 const std::vector<Range>& held)
      : config_(std::move(config)), count_(count) {
    std::int64_t codes = 0;
    std::int64_t blocks = 0;
    std::int64_t full = 0;
    for (const Range& part : held) {
      for (const ParameterRange& whole : ranges) {
        Piece piece{.range = {std::max(whole.begin, part.begin), std::min(whole.end, part.end)},
                    .weight_decay = whole.weight_decay};
        if (piece.range.size() <= 0) continue;
        piece.place = held_ + piece.range.begin - part.begin;
        piece.coded = whole.end - whole.begin >= kLeastCoded;
        piece.begin = piece.coded ? codes : full;
        piece.block = blocks;
        (piece.coded ? codes : full) += piece.range.size();
        if (piece.coded) blocks += blocks_of(piece.range.size());
        pieces_.push_back(piece);
      }
      held_ += part.size();
    }
    const auto add = [&](const char* name, Levels levels) {
      names_.emplace_back(name);
      coded_.emplace_back(levels, codes, blocks, full);
    };
    if (config_.adaptive()) {
      add("exp_avg", Levels::with_sign);
      add("exp_avg_sq", Levels::positive);
    } else if (config_.momentum != 0.0) {
      add("momentum_buffer", Levels::with_sign);
    }
  }

  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t step, const std::vector<Range>& parts) override {
    close_state();
    auto* const values = data_of<float>(parameters, "parameters");
    const auto* const sums = data_of<const float>(gradients, "gradients");
    for (const Piece& piece : pieces_) {
      if (!is_in(piece, parts)) continue;
      update_piece(piece, values + place_in(parameters, piece), sums + place_in(gradients, piece),
                   [&](float* of_values, const float* of_sums, std::int64_t n, float* first, float* second) {
                     update(of_values, of_sums, static_cast<std::size_t>(n), first, second,
                            {scale, learning_rate, step, piece.weight_decay});
                   });
    }
  }

  const std::vector<OptimizerState>& state() const override {
    if (!state_.empty()) return state_;
    for (std::size_t i = 0; i < coded_.size(); ++i) state_.push_back({names_[i], decoded(i, {0, held_})});
    return state_;
  }

  std::vector<std::string> coded_names() const override { return names_; }

  at::Tensor decoded(std::size_t index, const Range& places) const override {
    at::Tensor found = at::zeros({places.size()}, at::kFloat);
    auto* const values = found.mutable_data_ptr<float>();
    const CodedState& state = coded_.at(index);
    const auto copy = [&](const float* from, std::int64_t begin, std::int64_t count) {  // `begin`: a place
      const Range common{std::max(begin, places.begin), std::min(begin + count, places.end)};
      if (common.size() > 0)
        std::copy_n(from + common.begin - begin, common.size(), values + common.begin - places.begin);
    };
    for (const Piece& piece : pieces_) {
      if (piece.place >= places.end || piece.place + piece.range.size() <= places.begin) continue;
      if (!piece.coded) copy(state.full(piece), piece.place, piece.range.size());
      for_blocks(piece, [&](std::int64_t block, std::int64_t begin, std::int64_t count) {
        BlockValues of_block;
        state.decode(piece, block, count, of_block.data());
        copy(of_block.data(), piece.place + begin, count);
      });
    }
    return found;
  }

  void take_over_state() override {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const auto* const values = state_[i].value.const_data_ptr<float>();
      for (const Piece& piece : pieces_) {
        for_blocks(piece, [&](std::int64_t block, std::int64_t begin, std::int64_t count) {
          coded_[i].encode(piece, block, count, values + piece.place + begin);
        });
        if (!piece.coded) std::copy_n(values + piece.place, piece.range.size(), coded_[i].full(piece));
      }
    }
    close_state();
  }

  void close_state() override { state_.clear(); }

  std::int64_t state_bytes() const override {
    std::int64_t bytes = 0;
    for (const CodedState& state : coded_) bytes += state.bytes();
    return bytes;
  }

 private:
  struct Numbers {
    double scale;
    double learning_rate;
    std::int64_t step;
    double weight_decay;
  };

  /// The elements of a whole buffer, or of the held parts.
  template <class T>
  T* data_of(const at::Tensor& flat, const char* what) const {
    require(flat.scalar_type() == at::kFloat && flat.is_contiguous() && flat.is_cpu() &&
                (flat.numel() == count_ || flat.numel() == held_),
            fmt::format("the flat {} do not match what the optimizer was made for", what),
            {.subject = fmt::format("optimizer {}", config_.name),
             .advice = fmt::format("pass {} or {} contiguous floats, not {}", count_, held_, flat.numel())});
    if constexpr (std::is_const_v<T>) {
      return static_cast<T*>(flat.const_data_ptr());
    } else {
      return static_cast<T*>(flat.data_ptr());
    }
  }

  std::int64_t place_in(const at::Tensor& flat, const Piece& piece) const {
    return flat.numel() == count_ ? piece.range.begin : piece.place;
  }

  /// Blocks are updated as a whole, or not at all.
  bool is_in(const Piece& piece, const std::vector<Range>& parts) const {
    for (const Range& part : parts) {
      if (part.begin <= piece.range.begin && piece.range.end <= part.end) return true;
      require(piece.range.end <= part.begin || part.end <= piece.range.begin,
              fmt::format("elements [{}, {}) of a state in 8 bits are not updated apart", piece.range.begin,
                          piece.range.end),
              {.subject = fmt::format("optimizer {}", config_.name),
               .advice = "update the parts that it was made for"});
    }
    return false;
  }

  template <class Body>
  static void for_blocks(const Piece& piece, const Body& body) {
    if (!piece.coded) return;
    const std::int64_t count = piece.range.size();
    for (std::int64_t block = 0, begin = 0; begin < count; ++block, begin += kBlock)
      body(block, begin, std::min(kBlock, count - begin));
  }

  template <class Update>
  void update_piece(const Piece& piece, float* values, const float* sums, const Update& update) {
    if (!piece.coded || coded_.empty()) {
      float* const first = coded_.empty() ? nullptr : coded_[0].full(piece);
      update(values, sums, piece.range.size(), first, coded_.size() > 1 ? coded_[1].full(piece) : nullptr);
      return;
    }
    std::array<BlockValues, 2> moments{};
    for_blocks(piece, [&](std::int64_t block, std::int64_t begin, std::int64_t count) {
      for (std::size_t i = 0; i < coded_.size(); ++i)
        coded_[i].decode(piece, block, count, moments[i].data());
      update(values + begin, sums + begin, count, moments[0].data(), moments[1].data());
      for (std::size_t i = 0; i < coded_.size(); ++i)
        coded_[i].encode(piece, block, count, moments[i].data());
    });
  }

  void update(float* values, const float* sums, std::size_t n, float* first, float* second,
              const Numbers& numbers) const {
    if (config_.adaptive()) {
      kernels::adam_update(
          values, sums, first, second, n,
          adam_update_of(config_, numbers.scale, numbers.learning_rate, numbers.step, numbers.weight_decay));
      return;
    }
    kernels::sgd_update(values, sums, first, n,
                        {.scale = numbers.scale,
                         .learning_rate = numbers.learning_rate,
                         .momentum = config_.momentum,
                         .weight_decay = numbers.weight_decay,
                         .nesterov = config_.nesterov});
  }

  const OptimizerConfig config_;
  const std::int64_t count_;
  std::int64_t held_ = 0;  // elements of the held parts
  std::vector<Piece> pieces_;
  std::vector<std::string> names_;
  std::vector<CodedState> coded_;
};

}  // namespace

std::unique_ptr<Optimizer> make_coded_optimizer(const OptimizerConfig& config, std::int64_t count,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const std::vector<Range>& held) {
  require(options.device().is_cpu() && c10::typeMetaToScalarType(options.dtype()) == at::kFloat,
          "a state in 8 bits is of floats on the CPU",
          {.subject = "--optimizer-state-bits 8", .advice = "use --precision fp32 and --device cpu"});
  return std::make_unique<CodedOptimizer>(config, count, ranges, held);
}

}  // namespace dtrain::optim
