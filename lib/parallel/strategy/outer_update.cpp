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

void OuterUpdate::apply(at::Tensor& values) {
  const at::NoGradGuard no_grad;
  values.neg_().add_(outer_);  // the difference
  momentum_.mul_(config_.momentum).add_(values);
  outer_.sub_(values, config_.learning_rate).sub_(momentum_, config_.learning_rate * config_.momentum);
  values.copy_(outer_);
}

}  // namespace dtrain::parallel
