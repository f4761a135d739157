#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/manifest.hpp"
#include "optim/schedule.hpp"
#include "parallel/step/pieces.hpp"
#include "record/rows.hpp"
#include "state/resume_point.hpp"
#include "train/recovery/recovery.hpp"

namespace dtrain::train {

/// Whether the epoch of a checkpoint is over, and the next one is to begin. `samples`: of an epoch.
bool is_done(const checkpoint::CheckpointInfo& info, std::int64_t samples);

/// Which rows of an earlier part of the run count; `behind`: the ranks that it lost. An epoch that goes on is
/// recorded when it is done.
std::optional<record::Kept> rows_kept(const std::optional<state::ResumePoint>& resume,
                                      const std::optional<LostRanks>& behind, std::int64_t samples);

/// Where the run that resumes stands. A run from another run's checkpoint may cut its steps otherwise and
/// keep or reset the optimizer's state (`optimizer_state`, as `--optimizer-state`): step and updates are then
/// counted in `pieces`. Throws Error (exit code 2) where the checkpoint is within an epoch that other batches
/// cut otherwise.
checkpoint::CheckpointInfo standing(const state::ResumePoint& resume, const parallel::Pieces& pieces,
                                    const std::string& optimizer_state);

/// The same for the checkpoints of a run that begins from another run's, before its first step. `run`: what
/// they all say of it, as info_of_run(); `start`: as standing(). Nothing is validated yet, virtual times
/// begin at 0, and the learning rates follow from `total_steps`.
checkpoint::CheckpointInfo begun_at(const checkpoint::CheckpointInfo& start, checkpoint::CheckpointInfo run,
                                    std::int64_t total_steps);

/// What becomes of the learning rate where the run is to do another number of steps than before; mostly
/// empty. `recipe_warmup`: as of UpdateConfig.
std::string stretched_schedule(const optim::ScheduleConfig& schedule, int recipe_warmup,
                               const checkpoint::CheckpointInfo& earlier, std::int64_t total_steps);

}  // namespace dtrain::train
