#pragma once

#include <functional>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "train/config/config.hpp"
#include "train/recovery/job_ranks.hpp"
#include "train/recovery/recovery.hpp"

namespace dtrain::train {

/// What a run does on the ranks that are there. Called on those that work.
struct RunPart {
  /// Trains from the newest checkpoint, or from the start, to the end. What it settles for the parts to come
  /// it puts into `config`. Throws Error with ExitCode::lost_rank where ranks were lost.
  std::function<ExitCode(RunConfig& config, Recovery& recovery)> train;
  /// The run cannot go on, and says so to those that look at it later. On spares, too.
  std::function<void(const RunConfig& config)> mark_failed;
};

/// Trains to the end, through losses: `part`, and on the ranks that are left `part` again, as long as the run
/// can go on. The last `config.spares` ranks wait until a place becomes free, or for the end of the run.
/// Returns what the last part returns, on spares too. Collective over the job. Throws Error: of the part; of
/// the loss (exit code 5) where the run cannot go on after it; of options that ask for what the job or the
/// strategy cannot do (exit code 2).
ExitCode run_in_parts(const RunConfig& config, const RunPart& part, comm::MpiEnvironment& mpi);
ExitCode run_in_parts(const RunConfig& config, const RunPart& part, JobRanks& ranks);

}  // namespace dtrain::train
