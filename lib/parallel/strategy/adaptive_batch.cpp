#include "parallel/strategy/adaptive_batch.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel/gradients/noise_scale.hpp"

namespace dtrain::parallel {

AdaptiveBatch::AdaptiveBatch(std::int64_t global_batch, const optim::OptimizerConfig& optimizer)
    : global_batch_(global_batch),
      exponent_(optimizer.adaptive() ? 0.5 : 1.0),
      state_(at::zeros({kFields}, at::kDouble)),
      counted_in_(at::full({1}, global_batch, at::kDouble)) {
  number(kBatches) = number(kRate) = 1;
}

void AdaptiveBatch::add(const StepTotals& total, double loss_scale) {
  if (total.copies < 2) return;
  const double scale = total.weight * loss_scale;
  const auto found = noise_estimate({.small_squares = total.copy_squares / total.copies,
                                     .small_inverse = total.copy_inverse / total.copies,
                                     .large_squares = total.gradient_squares / (scale * scale),
                                     .large_inverse = 1 / total.samples});
  number(kNoise) += found.noise;
  number(kSignal) += found.signal;
}

double AdaptiveBatch::noise_scale() const {
  const double noise = number(kNoise);
  const double signal = number(kSignal);
  return noise > 0 && signal > 0 ? noise / signal : std::numeric_limits<double>::quiet_NaN();
}

std::string AdaptiveBatch::end_epoch(std::int64_t batches_in_epoch) {
  const double scale = noise_scale();
  for (const Field field : {kNoise, kSignal}) number(field) /= 2;
  if (std::isnan(scale))
    return fmt::format("the noise scale is not known; a step takes {} x {} samples", batches(),
                       global_batch_);
  const auto base = static_cast<double>(global_batch_);
  const double before = number(kBatches);
  const double most =
      std::clamp(static_cast<double>(batches_in_epoch / kLeastSteps), 1.0, static_cast<double>(kMostBatches));
  const double nearest = std::exp2(std::round(std::log2(std::max(scale / base, 1.0))));
  const double allowed = std::exp2(std::floor(std::log2(most)));
  number(kBatches) = std::min(std::clamp(nearest, before / 2, 2 * before), allowed);
  number(kBatches) = std::max(number(kBatches), 1.0);
  const double batch = base * number(kBatches);
  number(kRate) = std::pow((1 + scale / base) / (1 + scale / batch), exponent_);
  return fmt::format(
      "the noise scale is {:.4g} samples; a step takes {} x {} samples, before {} x {}; learning rates x "
      "{:.4g}",
      scale, batches(), global_batch_, before, global_batch_, rate());
}

std::vector<StateTensor> AdaptiveBatch::saved() const {
  const auto group = fmt::format("{}adaptive_batch", StateTensor::kOptimizer);
  return {{.group = group, .name = "state", .value = state_, .slice = nullptr, .owner = {.pipe = 0}},
          {.group = group,
           .name = "global_batch",
           .value = counted_in_,
           .slice = nullptr,
           .owner = {.pipe = 0},
           .anew = fmt::format("the checkpoint does not say what batch --adaptive-batch has multiplied: it "
                               "is taken for {}",
                               global_batch_)}};
}

void AdaptiveBatch::adopt() {
  const auto here = static_cast<double>(global_batch_);
  if (counted_in_.item<double>() == here) return;
  counted_in_.fill_(here);
  number(kBatches) = number(kRate) = 1;
}

}  // namespace dtrain::parallel
