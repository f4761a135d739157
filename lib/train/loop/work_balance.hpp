#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parallel/pipeline/stage_balancing.hpp"
#include "parallel/step/balancing.hpp"
#include "parallel/step/pieces.hpp"
#include "record/step_clock.hpp"
#include "train/config/config.hpp"
#include "train/loop/replica.hpp"
#include "train/loop/work_plan.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// `--balance`: what a run makes of the speeds that it measures. The data axis deals its micro-batches anew
/// within an epoch, the pipe axis moves layers after one. Made alike on all ranks.
class WorkBalance {
 public:
  struct Parts {
    const RunConfig& config;
    const Job& job;
    const Workload& workload;
    Replica& replica;
    const parallel::Pieces& pieces;
    WorkPlan& plan;  ///< Learns which rank owns each micro-batch of coming steps.
    /// Says on all ranks how the data axis has changed. `kind`: of the event, and of the line in the log.
    std::function<void(const std::string& kind, const std::string& words)> tell;
  };
  /// Everything in it is borrowed.
  explicit WorkBalance(Parts parts);

  /// After each step. `phases`: what this rank took for it; `micro_batches`: how many it had. Collective in
  /// some steps.
  void step(std::int64_t number, const record::PhaseTotals& phases, std::size_t micro_batches);

  /// After epoch `epoch`, which another one follows: how to cut the pipeline anew; empty: the layers stay
  /// where they are. Collective.
  std::optional<parallel::StageBalancing::Decision> new_cuts(int epoch);

 private:
  std::optional<parallel::Balancing> of_data();
  std::optional<parallel::StageBalancing> of_stages();
  double computed_s(const record::PhaseTotals& phases);

  Parts parts_;
  std::optional<parallel::Balancing> data_;         // empty: each rank keeps its micro-batches
  std::optional<parallel::StageBalancing> stages_;  // empty: the layers stay where they are
  double clocked_s_ = 0;  // that an emulated machine had computed up to the step before
};

}  // namespace dtrain::train
