#pragma once

#include <optional>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/start_notice.hpp"
#include "environment.hpp"
#include "record/run_holder.hpp"
#include "train/config/config.hpp"
#include "train/recovery/recovery.hpp"

namespace dtrain::app {

/// After a run that failed, see RunFolder::mark_failed(); a run that it was to replace, and has not, stays as
/// it is.
void mark_failed(const train::RunConfig& config) noexcept;

/// Seconds that ranks wait for one another while a run starts.
double start_limit_s(const train::RunConfig& config);

/// Rank 0 of a run keeps its folder from the first part to the last, so that no moment between two parts
/// looks like the end of the run. Empty on other ranks.
using KeptFolder = std::optional<record::RunHolder>;

/// One part of a run, in the run's folder: from its newest checkpoint, or from the start, to the end or to a
/// loss. `config`: as it was given, but for what an earlier part of the run has settled; that is put into it.
/// `named`: the user gave the run its name. `starting` (null: nothing) hears what the start is busy with.
/// `holder`: the same for all parts. Collective over mpi.world(). Throws Error.
ExitCode train_part(train::RunConfig& config, train::Recovery& recovery, bool named,
                    const Environment& environment, comm::MpiEnvironment& mpi, StartNotice* starting,
                    KeptFolder& holder);

}  // namespace dtrain::app
