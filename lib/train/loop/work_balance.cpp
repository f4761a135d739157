#include "train/loop/work_balance.hpp"

#include <utility>

#include "train/loop/evaluations.hpp"

namespace dtrain::train {

WorkBalance::WorkBalance(Parts parts) : parts_(std::move(parts)), data_(of_data()), stages_(of_stages()) {}

std::optional<parallel::Balancing> WorkBalance::of_data() {
  if (!balances_data(parts_.config)) return std::nullopt;
  return parallel::Balancing(
      {.micro_batches = parts_.pieces.micro_batches,
       .data_ranks = parts_.pieces.data_ranks,
       // Batches: those that are ready, one that is being read, one taken ahead.
       .lead = loader_options(parts_.job).prefetch + 3,
       .gather = [this](double mine) { return parts_.replica.largest_of_copies(mine); },
       .change =
           [this](std::int64_t first, const parallel::Ownership& owned, const std::string& words) {
             parts_.plan.own(first, owned);
             parts_.tell("balance", words);
           }});
}

std::optional<parallel::StageBalancing> WorkBalance::of_stages() {
  if (!balances_stages(parts_.config)) return std::nullopt;
  return parallel::StageBalancing(
      {.cuts = parts_.workload.cuts,
       .layer_costs = parts_.workload.layer_costs,
       .model = parts_.workload.model->name(),
       .gather = [this](double mine) { return parts_.replica.largest_of_stages(mine); }});
}

void WorkBalance::step(std::int64_t number, const record::PhaseTotals& phases, std::size_t micro_batches) {
  if (data_) data_->step(number, computed_s(phases), micro_batches);
  if (stages_) stages_->step(phases.times.forward_time_s + phases.times.backward_time_s);
}

std::optional<parallel::StageBalancing::Decision> WorkBalance::new_cuts(int epoch) {
  return stages_ ? stages_->after_epoch(epoch) : std::nullopt;
}

/// What this rank took for the micro-batches of the step just done, without waits for other ranks.
double WorkBalance::computed_s(const record::PhaseTotals& phases) {
  const auto* const clock = parts_.job.virtual_clock();
  if (clock == nullptr)
    return phases.times.data_time_s + phases.times.forward_time_s + phases.times.backward_time_s;
  return clock->computed_s() - std::exchange(clocked_s_, clock->computed_s());
}

}  // namespace dtrain::train
