#include "optim/fused_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace dtrain::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

class FusedOptimizer final : public Optimizer {
 public:
  FusedOptimizer(OptimizerConfig config, const std::vector<ParameterRange>& ranges,
                 const at::TensorOptions& options, const StateAllocator& allocate, HeldRanges held)
      : config_(std::move(config)), held_(std::move(held)) {
    for (const ParameterRange& range : ranges) add(ranges_[range.weight_decay], {range.begin, range.end});
    const std::vector<std::string> names = config_.name == "sgd"
                                               ? std::vector<std::string>{"momentum_buffer"}
                                               : std::vector<std::string>{"exp_avg", "exp_avg_sq"};
    for (int i = 0; i < config_.state_count(); ++i) {
      state_.push_back(
          {names[static_cast<std::size_t>(i)],
           allocate ? allocate(held_.count()) : at::zeros({held_.count()}, options.requires_grad(false))});
    }
  }

  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t step, const std::vector<Range>& parts) override {
    const at::NoGradGuard no_grad;
    // What the fused updates divide by; in float, as they want it.
    const auto number = parameters.options().dtype(at::kFloat).requires_grad(false);
    const at::Tensor divisor = at::full({}, 1.0 / scale, number);
    const at::Tensor count = at::full({}, static_cast<double>(step), number);
    for (const auto& [weight_decay, ranges] : ranges_) {
      const auto pieces = common(ranges, parts);
      if (pieces.empty()) continue;
      const auto of = [&](const at::Tensor& flat) {
        Tensors views;
        for (const Range& piece : pieces) views.push_back(flat.narrow(0, piece.begin, piece.size()));
        return views;
      };
      const auto state_of = [&](std::size_t index) {
        Tensors views;
        for (const Range& piece : pieces)
          views.push_back(state_[index].value.narrow(0, held_.place_of(piece), piece.size()));
        return views;
      };
      const Tensors values = of(parameters);
      const Tensors sums = of(gradients);
      if (config_.name == "sgd") {
        const Tensors momentum = state_.empty() ? Tensors() : state_of(0);
        at::_fused_sgd_(values, sums, momentum, weight_decay, config_.momentum, learning_rate, 0.0,
                        config_.nesterov, false, false, divisor);
        continue;
      }
      const Tensors counts(pieces.size(), count);
      const auto update = config_.name == "adamw" ? kAdamW : kAdam;
      update(values, sums, state_of(0), state_of(1), {}, counts, learning_rate, config_.beta1, config_.beta2,
             weight_decay, config_.eps, false, false, divisor, {});
    }
  }

 private:
  using Adam = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                        at::TensorList, double, double, double, double, double, bool, bool,
                        const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  static constexpr Adam kAdam = &at::_fused_adam_;
  static constexpr Adam kAdamW = &at::_fused_adamw_;

  /// Neighbours are one range: each one costs a view of every tensor in every step. Parameters begin at 64
  /// bytes; what lies between is zero in all tensors and stays so.
  static void add(std::vector<Range>& ranges, const Range& next) {
    constexpr std::int64_t kLeastParameter =
        16;  // elements, with what is behind it: a smaller gap holds none
    const bool follows = !ranges.empty() && next.begin >= ranges.back().end &&
                         next.begin - ranges.back().end < kLeastParameter;
    if (follows) {
      ranges.back().end = next.end;
    } else {
      ranges.push_back(next);
    }
  }

  static std::vector<Range> common(const std::vector<Range>& ranges, const std::vector<Range>& parts) {
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
      for (const Range& part : parts) {
        const Range piece{std::max(range.begin, part.begin), std::min(range.end, part.end)};
        if (piece.size() > 0) pieces.push_back(piece);
      }
    }
    return pieces;
  }

  const OptimizerConfig config_;
  const HeldRanges held_;
  std::map<double, std::vector<Range>> ranges_;  // by weight decay
};

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(const OptimizerConfig& config,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const StateAllocator& allocate, HeldRanges held) {
  return std::make_unique<FusedOptimizer>(config, ranges, options, allocate, std::move(held));
}

}  // namespace dtrain::optim
