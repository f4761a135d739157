#include "parallel/step/pipeline_engine.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "models/compute/loss_scope.hpp"
#include "models/compute/precision.hpp"
#include "parallel/pipeline/simulation.hpp"

namespace dtrain::parallel {

const Schedule& PipelineEngine::schedule_for(std::size_t micro_batches) {
  auto place = schedules_.find(micro_batches);
  if (place == schedules_.end()) {
    auto schedule = make_schedule(parts_.pipelining, parts_.pipeline.ranks(), parts_.stages_per_rank,
                                  static_cast<int>(micro_batches));
    simulate(schedule);  // proved to end before it runs
    place = schedules_.emplace(micro_batches, std::move(schedule)).first;
  }
  return place->second;
}

void PipelineEngine::keep_weights(LayerWeights& weights, int micro_batches) {
  parts_.pipeline.keep_weights(weights);
  fewest_ = static_cast<std::size_t>(micro_batches);
}

std::vector<MicroBatchLoss> PipelineEngine::compute(const StepPlan& plan, SampleSource& samples,
                                                    LocalSums& sums, double loss_scale) {
  sums.begin_step(static_cast<int>(plan.micro_batches.size()));
  auto losses = give(
      plan, [&](std::size_t m) { return samples.take(plan, m); }, sums, loss_scale);
  read_ahead(plan, samples);
  return losses;
}

void PipelineEngine::read_ahead(const StepPlan& plan, SampleSource& samples) const {
  const bool reads = parts_.pipeline.is_first() || parts_.pipeline.is_last();
  if (plan.another_follows && reads && !parts_.device.is_cpu()) samples.read_ahead();
}

std::vector<MicroBatchLoss> PipelineEngine::give(const StepPlan& plan, const SamplesOf& samples_of,
                                                 LocalSums& sums, double loss_scale,
                                                 const Replayed& replayed) {
  std::vector<MicroBatchLoss> losses;
  std::vector<std::int64_t> samples;
  for (const auto& micro_batch : plan.micro_batches) samples.push_back(micro_batch.samples());
  const auto index_of = [&](int m) { return plan.micro_batches[static_cast<std::size_t>(m)].index; };
  at::Tensor targets;  // of the micro-batch that came in last, where the first rank is the last one too
  const bool one_rank = parts_.pipeline.is_first() && parts_.pipeline.is_last();
  const Pipeline::Training work{
      .context =
          [&](int m) {
            return models::Context{.mode = models::Mode::training,
                                   .seed = parts_.seed,
                                   .step = static_cast<std::uint32_t>(plan.number),
                                   .micro_batch = index_of(m),
                                   .half = parts_.half,
                                   .kernels = parts_.kernels,
                                   .as_sent = parts_.reproducible,
                                   .replayed_step = replayed.step};
          },
      .inputs =
          [&](int m) {
            auto read_now = samples_of(static_cast<std::size_t>(m));
            targets = std::move(read_now.targets);
            return std::move(read_now.inputs);
          },
      .loss =
          [&](int m, const models::Tensors& outputs) {
            if (!one_rank) targets = samples_of(static_cast<std::size_t>(m)).targets;
            const models::KernelScope kernels(parts_.kernels);
            const bool as_they_are = models::fused_kernels_are_on() && parts_.model.takes_half_outputs();
            auto loss = parts_.model.training_loss(as_they_are ? outputs : models::in_full(outputs), targets,
                                                   parts_.training_loss);
            if (parts_.spoils_loss && parts_.spoils_loss()) {
              loss.loss = loss.loss * std::numeric_limits<double>::quiet_NaN();
            }
            losses.push_back({index_of(m), loss, samples[static_cast<std::size_t>(m)]});
            losses.back().sums.loss = loss.loss.detach();
            if (parts_.half != at::kHalf) return loss.loss;
            return replayed.loss_scale.defined() ? loss.loss * replayed.loss_scale : loss.loss * loss_scale;
          },
      .taken_back = [&](int m) { sums.taken_back(static_cast<int>(index_of(m))); }};
  const models::LossScope loss(
      parts_.model.takes_half_outputs() &&
      models::loss_may_take_factors(parts_.kernels, parts_.half, parts_.training_loss));
  parts_.pipeline.train(schedule_for(std::max(plan.micro_batches.size(), fewest_)), samples, work);
  return losses;
}

}  // namespace dtrain::parallel
