#pragma once

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/start_notice.hpp"
#include "environment.hpp"
#include "train/config/config.hpp"
#include "train/recovery/recovery.hpp"

namespace dtrain::app {

/// After a run that failed, see RunFolder::mark_failed(); a run that it was to replace, and has not, stays as
/// it is.
void mark_failed(const train::RunConfig& config) noexcept;

/// Seconds that ranks wait for one another while a run starts.
double start_limit_s(const train::RunConfig& config);

/// One part of a run, in the run's folder: from its newest checkpoint, or from the start, to the end or to a
/// loss. `config`: as it was given, but for what an earlier part of the run has settled; that is put into it.
/// `named`: the user gave the run its name. `starting` (null: nothing) hears what the start is busy with.
/// Collective over mpi.world(). Throws Error.
ExitCode train_part(train::RunConfig& config, train::Recovery& recovery, bool named,
                    const Environment& environment, comm::MpiEnvironment& mpi, StartNotice* starting);

}  // namespace dtrain::app
