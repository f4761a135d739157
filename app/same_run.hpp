#pragma once

#include <string>

#include "checkpoint/manifest.hpp"
#include "train/config.hpp"

namespace dtrain::app {

/// Throws Error (exit code 2), naming what differs, unless `config` is that of the run that left this
/// checkpoint: how long it trains, the mesh, where it reads and how it is run, and what it leaves behind may
/// be others; with `--reproducible` nothing that its bits depend on.
void check_same_run(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
                    const std::string& checkpoint);

/// Whether the user has asked for more steps than the run that left this checkpoint was to do, by `--epochs`
/// or
/// `--limit-steps`.
bool is_longer(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
               const std::string& checkpoint);

}  // namespace dtrain::app
