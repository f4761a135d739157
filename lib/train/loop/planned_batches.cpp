#include "train/loop/planned_batches.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

/// A loader counts steps from 0.
void require_match(const data::Batch& batch, const parallel::StepPlan& plan, std::size_t m) {
  require(m < plan.micro_batches.size(),
          fmt::format("step {} has {} micro-batches, and another one is taken", plan.number,
                      plan.micro_batches.size()),
          {.subject = "the plan of a step", .advice = "report this as a bug"});
  const auto& wanted = plan.micro_batches[m];
  const bool same_place =
      batch.step + 1 == plan.number && batch.micro_batch == static_cast<int>(wanted.index);
  require(same_place && batch.samples == wanted.ids,
          fmt::format("brings {} samples of step {}, micro-batch {}; the plan wants {}{} samples of step {}, "
                      "micro-batch {}",
                      batch.samples.size(), batch.step + 1, batch.micro_batch, wanted.ids.size(),
                      same_place ? " other" : "", plan.number, wanted.index),
          {.subject = "the loader", .advice = "report this as a bug"});
}

}  // namespace

PlannedBatches::PlannedBatches(NextBatch next, Prepare prepare, SpanSink& sink)
    : next_(std::move(next)), prepare_(std::move(prepare)), sink_(sink) {}

PlannedBatches::Read PlannedBatches::read() const {
  data::Batch batch;
  {
    const ScopedSpan span(sink_, Phase::data, "load");
    batch = next_();
  }
  const ScopedSpan span(sink_, Phase::data, "prepare");
  auto samples = prepare_(batch);
  batch.inputs.reset();  // the samples keep what they need of them
  batch.targets.reset();
  return {std::move(batch), std::move(samples)};
}

parallel::Samples PlannedBatches::take(const parallel::StepPlan& plan, std::size_t m) {
  if (ahead_.empty()) ahead_.push_back(read());
  Read next = std::move(ahead_.front());
  ahead_.pop_front();
  require_match(next.batch, plan, m);
  return std::move(next.samples);
}

std::vector<parallel::Samples> PlannedBatches::look_ahead(const parallel::StepPlan& plan) {
  while (ahead_.size() < plan.micro_batches.size()) ahead_.push_back(read());
  std::vector<parallel::Samples> samples;
  for (std::size_t m = 0; m < plan.micro_batches.size(); ++m) samples.push_back(ahead_[m].samples);
  return samples;
}

}  // namespace dtrain::train
