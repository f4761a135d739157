#pragma once

#include <cstdint>
#include <functional>

#include "federated/client_rounds.hpp"
#include "parallel/step/pieces.hpp"
#include "train/config/config.hpp"
#include "train/loop/replica.hpp"
#include "train/loop/work_plan.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What this rank's WorkPlan of a run is made from: the samples of an epoch in order, those that a private
/// strategy draws, rounds of clients, or work that ranks take as it comes. `rounds` (null: the samples belong
/// to no clients) and `replica` are borrowed, for as long as the plan is used. `pauses_after`:
/// WorkPlan::Facts::pauses_after.
WorkPlan::Facts planned_work(const RunConfig& config, Job& job, const Workload& workload,
                             const Replica& replica, const federated::ClientRounds* rounds,
                             const parallel::Pieces& pieces,
                             std::function<bool(std::int64_t step)> pauses_after);

}  // namespace dtrain::train
