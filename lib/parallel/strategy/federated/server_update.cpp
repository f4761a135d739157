#include "parallel/strategy/federated/server_update.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace dtrain::parallel {

ServerUpdate::ServerUpdate(const Config& config, const at::Tensor& like) : config_(config) {
  if (config.optimizer == "none") return;
  moments_.push_back({"server_momentum", at::zeros_like(like)});
  if (config.optimizer != "momentum")
    moments_.push_back({"server_variance", at::full_like(like, kTau * kTau)});
}

void ServerUpdate::apply(at::Tensor& values, at::Tensor& mean) {
  const at::NoGradGuard no_grad;
  if (moments_.empty()) {
    values.add_(mean, config_.rate);
    return;
  }
  auto& momentum = moments_[0].values;
  if (moments_.size() == 1) {
    momentum.mul_(config_.beta1).add_(mean);
    values.add_(momentum, config_.rate);
    return;
  }
  auto& variance = moments_[1].values;
  momentum.mul_(config_.beta1).add_(mean, 1 - config_.beta1);
  auto& square = mean.square_();
  if (config_.optimizer == "yogi") {
    variance.sub_(at::sign(variance - square).mul_(square), 1 - kBeta2);
  } else {
    variance.mul_(kBeta2).add_(square, 1 - kBeta2);
  }
  values.addcdiv_(momentum, at::sqrt(variance).add_(kTau), config_.rate);
}

}  // namespace dtrain::parallel
