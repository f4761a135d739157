#include "models/losses.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>

#include "core/error.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

Error target_error(const at::Tensor& outputs, const at::Tensor& targets) {
  return data_error(fmt::format("targets {} do not fit the model's outputs {}", shape_text(targets.sizes()),
                                shape_text(outputs.sizes())),
                    "targets", "use a --dataset whose targets fit the --model's task");
}

}  // namespace

LossSums cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets) {
  const bool fits = logits.dim() == 2 && targets.dim() == 1 && targets.scalar_type() == at::kLong &&
                    targets.size(0) == logits.size(0);
  if (!fits) throw target_error(logits, targets);
  LossSums sums;
  sums.loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  {
    const at::NoGradGuard no_grad;
    sums.correct = logits.argmax(1).eq(targets).sum();
  }
  sums.weight = static_cast<double>(targets.size(0));
  return sums;
}

LossSums regression_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets) {
  if (targets.dim() == 0 || outputs.dim() == 0 || targets.numel() != outputs.numel() ||
      targets.size(0) != outputs.size(0)) {
    throw target_error(outputs, targets);
  }
  const at::Tensor wanted = targets.reshape(outputs.sizes()).to(outputs.scalar_type());
  const std::int64_t samples = outputs.size(0);
  LossSums sums;
  sums.loss = loss == Loss::mae ? at::l1_loss(outputs, wanted, at::Reduction::Sum)
                                : at::mse_loss(outputs, wanted, at::Reduction::Sum);
  const std::int64_t per_sample = samples == 0 ? 1 : outputs.numel() / samples;
  if (per_sample != 1) sums.loss = sums.loss / static_cast<double>(per_sample);
  sums.weight = static_cast<double>(samples);
  return sums;
}

LossSums loss_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets) {
  return loss == Loss::cross_entropy ? cross_entropy_sums(outputs, targets)
                                     : regression_sums(loss, outputs, targets);
}

Loss default_loss(const DatasetFacts& facts) { return facts.classes > 0 ? Loss::cross_entropy : Loss::mse; }

}  // namespace dtrain::models
