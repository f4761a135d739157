#pragma once

#include <filesystem>

#include "comm/mpi/mpi_environment.hpp"
#include "core/error.hpp"
#include "environment.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// The checkpoint that a user names: the folder itself, or where it is a run's, such as runs/NAME, its best
/// checkpoint, else its newest.
std::filesystem::path named_checkpoint(const std::filesystem::path& folder);

/// What the configuration of a named_checkpoint() says of its model and dataset, its weights to start from
/// those of the checkpoint, to be used by any number of ranks. What else stands there is data, not an order:
/// how the work was split, what was copied or started and what was left behind are at their defaults. Throws
/// Error (exit code 4) when the folder holds no valid manifest or no configuration of a run.
train::RunConfig config_of_checkpoint(const std::filesystem::path& named);

/// An error of a run with such a configuration: where it is about the model, which the user has not named, it
/// is the checkpoint's (exit code 4).
Error blamed_on_checkpoint(const Error& error, const std::filesystem::path& folder);

/// Completes such a configuration for the ranks that were started. Throws Error (exit code 2) when they do
/// not make up the mesh.
void spread_over_ranks(train::RunConfig& config, const Environment& environment,
                       const comm::MpiEnvironment& mpi);

}  // namespace dtrain::app
