#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// Throws Error (exit code 2), naming what differs, unless `config` is that of the run that left this
/// checkpoint: how long it trains, the mesh, where it reads and how it is run, and what it leaves behind may
/// be others; with `--reproducible` nothing that its bits depend on. From another run's checkpoint the update
/// may be another, too, where the user says with `--optimizer-state` what becomes of the optimizer's state.
enum class Origin { own_run, other_run };
void check_same_run(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
                    const std::string& checkpoint, Origin origin);

/// Samples of a step of the run that left this checkpoint; 0: it does not say.
std::int64_t global_batch_of(const checkpoint::CheckpointInfo& info, const std::string& checkpoint);

/// Whether the user asks for more steps than the run that left this checkpoint was to do, by `--epochs`,
/// `--limit-steps` or a more patient `--early-stopping`.
bool is_longer(const train::RunConfig& config, const checkpoint::CheckpointInfo& info,
               const std::string& checkpoint);

}  // namespace dtrain::app
