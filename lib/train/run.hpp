#pragma once

#include <optional>

#include "comm/mpi_environment.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/config.hpp"
#include "train/resume_point.hpp"

namespace dtrain::train {

/// Trains a model as `config` says and leaves a run folder behind: set up, build the mesh, create the model,
/// create the loader, train, clean up. `config` is resolved and validated, and the same on every rank. Goes
/// on from `resume` where that is given, on whatever layout. Returns ExitCode::stopped when it was asked to
/// stop and has left a checkpoint. Collective over MPI_COMM_WORLD. Throws Error.
ExitCode run(const RunConfig& config, const std::optional<ResumePoint>& resume, comm::MpiEnvironment& mpi,
             const Log& log);

}  // namespace dtrain::train
