#include "parallel/step/step.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "parallel/step/step_engine.hpp"

namespace dtrain::parallel {

void StepEngine::keep_weights(LayerWeights& /*weights*/, int /*micro_batches*/) {
  throw Error("brings no weights", {.subject = "an engine of steps", .advice = "report this as a bug"});
}

std::vector<MicroBatchLoss> on_cpu(std::vector<MicroBatchLoss> losses) {
  at::Tensor none;
  return on_cpu(std::move(losses), none);
}

std::vector<MicroBatchLoss> on_cpu(std::vector<MicroBatchLoss> losses, at::Tensor& numbers_too) {
  if (losses.empty() || losses[0].sums.loss.is_cpu()) return losses;
  std::vector<at::Tensor> numbers;
  for (const auto& [index, sums, samples] : losses) {
    numbers.push_back(sums.loss.to(at::kDouble));
    if (sums.correct.defined()) numbers.push_back(sums.correct.to(at::kDouble));
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  at::Tensor there = at::stack(numbers);
  if (numbers_too.defined()) there = at::cat({there, numbers_too});
  const at::Tensor here = there.cpu();
  if (numbers_too.defined()) numbers_too = here.narrow(0, count, numbers_too.numel());
  std::int64_t next = 0;
  for (auto& [index, sums, samples] : losses) {
    sums.loss = here[next++];
    if (sums.correct.defined()) sums.correct = here[next++].to(at::kLong);
  }
  return losses;
}

void StepTotals::add(const models::LossSums& sums, std::int64_t added) {
  loss += sums.loss.item<double>();
  weight += sums.weight;
  counted += sums.counted > 0 ? sums.counted : sums.weight;
  samples += static_cast<double>(added);
  if (sums.correct.defined()) correct += static_cast<double>(sums.correct.item<std::int64_t>());
}

void StepTotals::add_samples(const StepTotals& other) {
  loss += other.loss;
  weight += other.weight;
  correct += other.correct;
  counted += other.counted;
  samples += other.samples;
  micro_batches += other.micro_batches;
}

}  // namespace dtrain::parallel
