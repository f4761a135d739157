#include "parallel/step/direct_engine.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dtrain::parallel {

bool DirectEngine::fits(const StepPlan& plan) const {
  if (brings_weights_) return false;
  const auto& pieces = plan.micro_batches;
  return std::ranges::all_of(
      pieces, [&](const MicroBatch& piece) { return model_->fits(piece.samples(), pieces.size()); });
}

std::vector<MicroBatchLoss> DirectEngine::compute(const StepPlan& plan, SampleSource& samples,
                                                  LocalSums& sums, double loss_scale) {
  const bool differs = loss_scale != 1 || (spoils_loss_ && spoils_loss_());
  if (differs || !fits(plan)) return engine_.compute(plan, samples, sums, loss_scale);
  const at::NoGradGuard no_graph;
  sums.begin_step(static_cast<int>(plan.micro_batches.size()));
  std::vector<MicroBatchLoss> losses;
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) {
    const auto& micro_batch = plan.micro_batches[m];
    const auto [inputs, targets] = samples.take(plan, m);
    {
      const ScopedSpan span(sink_, Phase::forward, "forward");
      losses.push_back({micro_batch.index, model_->forward(inputs.at(0), targets), micro_batch.samples()});
    }
    const ScopedSpan span(sink_, Phase::backward, "backward");
    model_->backward();
    sums.taken_back(static_cast<int>(micro_batch.index));
  }
  return losses;
}

}  // namespace dtrain::parallel
