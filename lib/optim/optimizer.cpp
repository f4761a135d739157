#include "optim/optimizer.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "kernels/fused/rules.hpp"
#include "optim/adam.hpp"
#include "optim/coded_optimizer.hpp"
#include "optim/fused_optimizer.hpp"
#include "optim/held_ranges.hpp"

namespace dtrain::optim {
namespace {

/// A rule applied range by range.
class FlatOptimizer : public Optimizer {
 public:
  FlatOptimizer(OptimizerConfig config, std::int64_t count, std::vector<ParameterRange> ranges,
                const at::TensorOptions& options, StateAllocator allocate, HeldRanges held)
      : config_(std::move(config)),
        allocate_(std::move(allocate)),
        held_(std::move(held)),
        count_(count),
        ranges_(std::move(ranges)),
        type_(c10::typeMetaToScalarType(options.dtype())) {
    require(type_ == at::kFloat || type_ == at::kDouble, "optimizers update float or double parameters only",
            {.subject = "--precision"});
  }
  bool takes_decisions() const override { return type_ == at::kFloat; }

  bool write_copy_to(const at::Tensor& copy) override {
    if (type_ != at::kFloat || copy.scalar_type() != at::kBFloat16 || copy.numel() != count_) return false;
    copy_ = copy;
    return true;
  }

 protected:
  void add_state(const std::string& name, const at::TensorOptions& options) {
    const auto count = held_.count();
    state_.push_back({name, allocate_ ? allocate_(count) : at::zeros({count}, options.requires_grad(false))});
    check(state_.back().value, "state", count);
  }

  /// Calls `update(parameters, gradients, range)` for what each range and each part have in common, with
  /// pointers of the buffers' element type to the first element of that.
  template <class Update>
  void for_each_range(const at::Tensor& parameters, const at::Tensor& gradients,
                      const std::vector<Range>& parts, const Update& update) const {
    std::int64_t all = 0;
    for (const Range& part : parts) all += part.size();
    const bool holds_parts = parameters.numel() != count_;
    check(parameters, "parameters", holds_parts ? all : count_);
    const bool of_parts = gradients.numel() != count_;
    check(gradients, "gradients", of_parts ? all : count_);
    for (const ParameterRange& whole : ranges_) {
      std::int64_t before = 0;  // elements of the parts before
      for (const Range& part : parts) {
        const std::int64_t moved = before - part.begin;
        before += part.size();
        ParameterRange range = whole;
        range.begin = std::max(whole.begin, part.begin);
        range.end = std::min(whole.end, part.end);
        if (range.begin >= range.end) continue;
        if (type_ == at::kDouble) {
          update(
              static_cast<double*>(parameters.data_ptr()) + (holds_parts ? moved : 0) + range.begin,
              static_cast<const double*>(gradients.const_data_ptr()) + (of_parts ? moved : 0) + range.begin,
              range);
        } else {
          update_floats(
              static_cast<float*>(parameters.data_ptr()) + (holds_parts ? moved : 0) + range.begin,
              static_cast<const float*>(gradients.const_data_ptr()) + (of_parts ? moved : 0) + range.begin,
              range, update);
        }
      }
    }
  }

  template <class T>
  T* state_at(std::size_t index, const ParameterRange& range) const {
    return static_cast<T*>(state_[index].value.data_ptr()) + held_.place_of({range.begin, range.end});
  }

  const OptimizerConfig config_;

 private:
  static constexpr std::int64_t kRounded =
      2048;  // elements: with gradient and state in the first-level cache

  /// The same, and the copy where one is written: piece by piece, while the new values are in the cache.
  template <class Update>
  void update_floats(float* values, const float* sums, const ParameterRange& range,
                     const Update& update) const {
    if (!copy_.defined()) return update(values, sums, range);
    auto* const copy = static_cast<kernels::Bfloat16*>(copy_.data_ptr());
    ParameterRange piece = range;
    for (piece.begin = range.begin; piece.begin < range.end; piece.begin = piece.end) {
      piece.end = std::min(piece.begin + kRounded, range.end);
      const auto from = piece.begin - range.begin;
      update(values + from, sums + from, piece);
      kernels::round_to_bfloat16(copy + piece.begin, values + from,
                                 static_cast<std::size_t>(piece.end - piece.begin));
    }
  }

  void check(const at::Tensor& flat, const char* what, std::int64_t count) const {
    require(flat.scalar_type() == type_ && flat.is_contiguous() && flat.numel() == count && flat.is_cpu(),
            fmt::format("the flat {} do not match what the optimizer was made for", what),
            {.subject = fmt::format("optimizer {}", config_.name),
             .advice = fmt::format("pass {} contiguous elements of its type, not {}", count, flat.numel())});
  }

  const StateAllocator allocate_;
  const HeldRanges held_;
  const std::int64_t count_;
  const std::vector<ParameterRange> ranges_;
  const at::ScalarType type_;
  at::Tensor copy_;  // undefined: none is written
};

class Sgd final : public FlatOptimizer {
 public:
  Sgd(const OptimizerConfig& config, std::int64_t count, std::vector<ParameterRange> ranges,
      const at::TensorOptions& options, const StateAllocator& allocate, HeldRanges held)
      : FlatOptimizer(config, count, std::move(ranges), options, allocate, std::move(held)) {
    if (config_.momentum != 0.0) add_state("momentum_buffer", options);
  }

  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t /*step*/, const std::vector<Range>& parts) override {
    for_each_range(
        parameters, gradients, parts, [&]<class T>(T* values, const T* sums, const ParameterRange& range) {
          T* momentum = state_.empty() ? nullptr : state_at<T>(0, range);
          kernels::sgd_update(values, sums, momentum, static_cast<std::size_t>(range.end - range.begin),
                              {.scale = scale,
                               .learning_rate = learning_rate,
                               .momentum = config_.momentum,
                               .weight_decay = range.weight_decay,
                               .nesterov = config_.nesterov});
        });
  }
};

class Adam final : public FlatOptimizer {
 public:
  Adam(const OptimizerConfig& config, std::int64_t count, std::vector<ParameterRange> ranges,
       const at::TensorOptions& options, const StateAllocator& allocate, HeldRanges held)
      : FlatOptimizer(config, count, std::move(ranges), options, allocate, std::move(held)) {
    add_state("exp_avg", options);
    add_state("exp_avg_sq", options);
  }

  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t step, const std::vector<Range>& parts) override {
    for_each_range(
        parameters, gradients, parts, [&]<class T>(T* values, const T* sums, const ParameterRange& range) {
          kernels::adam_update(values, sums, state_at<T>(0, range), state_at<T>(1, range),
                               static_cast<std::size_t>(range.end - range.begin),
                               adam_update_of(config_, scale, learning_rate, step, range.weight_decay));
        });
  }
};

void check_ranges(std::vector<ParameterRange> ranges, std::int64_t count) {
  std::ranges::sort(ranges, {}, &ParameterRange::begin);
  std::int64_t end = 0;
  for (const ParameterRange& range : ranges) {
    require(range.begin >= end && range.begin <= range.end && range.end <= count,
            fmt::format("the parameter range [{}, {}) leaves [0, {}) or overlaps another", range.begin,
                        range.end, count),
            {.subject = "optimizer"});
    end = range.end;
  }
}

}  // namespace

kernels::AdamUpdate adam_update_of(const OptimizerConfig& config, double scale, double learning_rate,
                                   std::int64_t step, double weight_decay) {
  using Decay = kernels::AdamUpdate::Decay;
  const auto steps = static_cast<double>(step);
  return {.scale = scale,
          .learning_rate = learning_rate,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.eps,
          .weight_decay = weight_decay,
          .decay = config.name == "adamw" ? Decay::decoupled : Decay::coupled,
          .bias1 = 1.0 - std::pow(config.beta1, steps),
          .bias2 = 1.0 - std::pow(config.beta2, steps)};
}

void OptimizerConfig::validate() const {
  const auto usage = [](const char* option, const char* advice) {
    return ErrorContext{.subject = option, .advice = advice, .code = ExitCode::usage};
  };
  require(name == "sgd" || name == "adam" || name == "adamw", fmt::format("there is no optimizer {}", name),
          usage("--optimizer", "use sgd, adam or adamw"));
  require(momentum >= 0.0 && momentum < 1.0, fmt::format("momentum {} is outside [0, 1)", momentum),
          usage("--momentum", "use a number from 0 to below 1"));
  require(weight_decay >= 0.0 && std::isfinite(weight_decay),
          fmt::format("weight decay {} is not a number of at least 0", weight_decay),
          usage("--weight-decay", "use 0 or a small positive number"));
  require(!nesterov || (name == "sgd" && momentum > 0.0), "Nesterov's form is one of sgd with momentum",
          usage("--nesterov", "leave it out, or use --optimizer sgd with a --momentum such as 0.9"));
  require(beta1 >= 0.0 && beta1 < 1.0, fmt::format("beta1 {} is outside [0, 1)", beta1),
          usage("--beta1", "use a number from 0 to below 1, such as 0.9"));
  require(beta2 >= 0.0 && beta2 < 1.0, fmt::format("beta2 {} is outside [0, 1)", beta2),
          usage("--beta2", "use a number from 0 to below 1, such as 0.999"));
  require(state_bits == 32 || state_bits == 8,
          fmt::format("an optimizer has no state in {} bits", state_bits),
          usage("--optimizer-state-bits", "use 32 or 8"));
  require(offload == "none" || offload == "optimizer",
          fmt::format("\"{}\" is not a value it takes", printable(offload)),
          usage("--offload", "use one of none, optimizer"));
  require(eps > 0.0 && std::isfinite(eps), fmt::format("epsilon {} is not a positive number", eps),
          usage("--epsilon", "use a small positive number, such as 1e-8"));
}

int OptimizerConfig::state_count() const {
  if (name == "sgd") return momentum != 0.0 ? 1 : 0;
  return 2;
}

void Optimizer::step_as_decided(const at::Tensor& parameters, const at::Tensor& gradients,
                                const at::Tensor& decision, const std::vector<Range>& parts) {
  kernels::UpdateDecision decided;
  std::memcpy(&decided, decision.const_data_ptr(), sizeof decided);
  if (decided.applies == 0) return;
  step(parameters, gradients, decided.scale, decided.learning_rate, decided.count, parts);
}

at::Tensor Optimizer::decoded(std::size_t index, const Range& places) const {
  return state_.at(index).value.narrow(0, places.begin, places.size());
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const OptimizerState& state : state_) bytes += static_cast<std::int64_t>(state.value.nbytes());
  return bytes;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::int64_t count,
                                          std::vector<ParameterRange> ranges,
                                          const at::TensorOptions& options, const StateAllocator& allocate,
                                          std::optional<std::vector<Range>> held) {
  config.validate();
  check_ranges(ranges, count);
  if (!held) held = std::vector<Range>{{0, count}};
  HeldRanges parts(*held, count);
  if (config.codes_state()) return make_coded_optimizer(config, count, ranges, options, *held);
  if (!options.device().is_cpu())
    return make_fused_optimizer(config, ranges, options, allocate, std::move(parts));
  if (config.name == "sgd")
    return std::make_unique<Sgd>(config, count, std::move(ranges), options, allocate, std::move(parts));
  return std::make_unique<Adam>(config, count, std::move(ranges), options, allocate, std::move(parts));
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::int64_t count,
                                          const at::TensorOptions& options, const StateAllocator& allocate) {
  return make_optimizer(config, count, {{.begin = 0, .end = count, .weight_decay = config.weight_decay}},
                        options, allocate);
}

}  // namespace dtrain::optim
