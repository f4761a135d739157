#include "parallel/strategy/outer_update.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace dtrain::parallel {

OuterUpdate::OuterUpdate(const Config& config, const at::Tensor& like)
    : config_(config), outer_(at::zeros_like(like)), momentum_(at::zeros_like(like)) {}

void OuterUpdate::begin(const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  outer_.copy_(values);
}

void OuterUpdate::apply(at::Tensor& values, const Range& part) {
  const at::NoGradGuard no_grad;
  const auto of = [&part](const at::Tensor& all) { return all.narrow(0, part.begin, part.size()); };
  auto here = of(values);
  auto outer = of(outer_);
  auto momentum = of(momentum_);
  here.neg_().add_(outer);  // the difference
  momentum.mul_(config_.momentum).add_(here);
  outer.sub_(here, config_.learning_rate).sub_(momentum, config_.learning_rate * config_.momentum);
  here.copy_(outer);
}

}  // namespace dtrain::parallel
