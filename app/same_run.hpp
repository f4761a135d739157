#pragma once

#include <string>

#include "checkpoint/manifest.hpp"
#include "train/config.hpp"

namespace dtrain::app {

/// Throws Error (exit code 2), naming what differs, unless `config` is that of the run that left this
/// checkpoint: how long it trains, the mesh and how it is run, and what it leaves behind may be others.
void check_same_run(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
                    const std::string& checkpoint);

}  // namespace dtrain::app
