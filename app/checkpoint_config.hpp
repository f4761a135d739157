#pragma once

#include <filesystem>

#include "train/config.hpp"

namespace dtrain::app {

/// The configuration that a checkpoint's run was started with, its weights to start from those of the
/// checkpoint, to be used by any number of ranks: how the work was split is left open.
/// Throws Error (exit code 4) when the folder holds no valid manifest.
train::RunConfig config_of_checkpoint(const std::filesystem::path& folder);

}  // namespace dtrain::app
