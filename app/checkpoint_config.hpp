#pragma once

#include <filesystem>

#include "comm/mpi_environment.hpp"
#include "environment.hpp"
#include "train/config.hpp"

namespace dtrain::app {

/// The configuration that a checkpoint's run was started with, its weights to start from those of the
/// checkpoint, to be used by any number of ranks: how the work was split is left open.
/// Throws Error (exit code 4) when the folder holds no valid manifest.
train::RunConfig config_of_checkpoint(const std::filesystem::path& folder);

/// Completes such a configuration for the ranks that were started. Throws Error (exit code 2) when they do
/// not make up the mesh.
void spread_over_ranks(train::RunConfig& config, const Environment& environment,
                       const comm::MpiEnvironment& mpi);

}  // namespace dtrain::app
