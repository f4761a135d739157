#include "models/losses/losses.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "models/compute/beside.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

Error target_error(const at::Tensor& outputs, const at::Tensor& targets) {
  return data_error(fmt::format("targets {} do not fit the model's outputs {}", shape_text(targets.sizes()),
                                shape_text(outputs.sizes())),
                    "targets", "use a --dataset whose targets fit the --model's task");
}

}  // namespace

LossSums cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets, const TrainingLoss& how) {
  const bool fits = logits.dim() == 2 && targets.dim() == 1 && targets.scalar_type() == at::kLong &&
                    targets.size(0) == logits.size(0);
  if (!fits) throw target_error(logits, targets);
  LossSums sums;
  const at::Tensor wanted = beside(targets, logits);
  constexpr std::int64_t kNoClass = -100;  // PyTorch's: its samples are left out
  const at::Tensor& class_weights = how.class_weights;
  sums.loss = at::cross_entropy_loss(logits, wanted, beside(class_weights, logits), at::Reduction::Sum,
                                     kNoClass, how.label_smoothing);
  {
    const at::NoGradGuard no_grad;
    sums.correct = logits.argmax(1).eq(wanted).sum();
  }
  sums.counted = static_cast<double>(targets.size(0));
  sums.weight =
      class_weights.defined() ? class_weights.index_select(0, targets).sum().item<double>() : sums.counted;
  return sums;
}

LossSums regression_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets) {
  if (targets.dim() == 0 || outputs.dim() == 0 || targets.numel() != outputs.numel() ||
      targets.size(0) != outputs.size(0)) {
    throw target_error(outputs, targets);
  }
  const at::Tensor wanted = beside(targets.reshape(outputs.sizes()), outputs).to(outputs.scalar_type());
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

std::string loss_name(Loss loss) {
  switch (loss) {
    case Loss::cross_entropy:
      return "cross_entropy";
    case Loss::mse:
      return "mse";
    case Loss::mae:
      break;
  }
  return "mae";
}

Loss loss_of(const DatasetFacts& facts, const std::string& model, const std::vector<Loss>& possible) {
  if (facts.loss.empty()) return possible.at(0);
  std::vector<std::string> names;
  for (const Loss loss : possible) {
    if (loss_name(loss) == facts.loss) return loss;
    names.push_back(loss_name(loss));
  }
  throw usage_error(fmt::format("the model {} is not trained with it on a dataset of {}", model, facts.task),
                    "--loss " + facts.loss, fmt::format("use {}", fmt::join(names, " or ")));
}

std::vector<Loss> losses_of_task(const DatasetFacts& facts) {
  if (facts.classes > 0) return {Loss::cross_entropy};
  return {Loss::mse, Loss::mae};
}

}  // namespace dtrain::models
