#pragma once

#include <optional>
#include <string>

#include "comm/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/config.hpp"
#include "train/resume_point.hpp"

namespace dtrain::train {

/// What happened before a run goes on without ranks that were lost, for its events.
struct Recovery {
  std::string lost;      ///< `rank 1`, as it was at the start.
  double noticed_s = 0;  ///< steady_s()
  double agreed_s = 0;   ///< Those that are left know of each other.
};

/// Trains a model as `config` says and leaves a run folder behind: set up, build the mesh, create the model,
/// create the loader, train, clean up. `config` is resolved and validated, and the same on every rank. Goes
/// on from `resume` where that is given, on whatever layout. Returns ExitCode::stopped when it was asked to
/// stop and has left a checkpoint. `recovery`: what it goes on after. Collective over mpi.world(). Throws
/// Error.
ExitCode run(const RunConfig& config, const std::optional<ResumePoint>& resume,
             const std::optional<Recovery>& recovery, comm::MpiEnvironment& mpi, const Log& log);

}  // namespace dtrain::train
