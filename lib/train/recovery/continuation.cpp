#include "train/recovery/continuation.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

std::int64_t step_in(const parallel::Pieces& pieces, const state::ResumePoint& resume) {
  const auto& info = resume.info;
  const auto done = info.step - (info.epoch - 1) * pieces.steps();
  if (done >= 1 && done <= pieces.steps() && pieces.step(done - 1).end == info.position_samples)
    return info.step;
  require(is_done(info, pieces.samples), "stands within an epoch that other batches cut otherwise",
          {.subject = resume.folder.string(),
           .advice = "name a checkpoint of an epoch's end, or keep --global-batch",
           .code = ExitCode::usage});
  return info.epoch * pieces.steps();
}

}  // namespace

bool is_done(const checkpoint::CheckpointInfo& info, std::int64_t samples) {
  return info.position_samples == samples && info.so_far.evaluated;
}

std::optional<record::Kept> rows_kept(const std::optional<state::ResumePoint>& resume,
                                      const std::optional<LostRanks>& behind, std::int64_t samples) {
  const bool continues = resume && resume->own;
  if (!continues && behind) return record::Kept{.step = 0, .epoch = 0};  // all but what happened
  if (!continues) return std::nullopt;
  const auto& info = resume->info;
  return record::Kept{.step = info.step, .epoch = is_done(info, samples) ? info.epoch : info.epoch - 1};
}

checkpoint::CheckpointInfo standing(const state::ResumePoint& resume, const parallel::Pieces& pieces,
                                    const std::string& optimizer_state) {
  auto info = resume.info;
  if (resume.own || optimizer_state == "exact") return info;
  const auto updates = optimizer_state == "reset" ? 0 : info.step - info.loss_scale.left_out;
  info.step = step_in(pieces, resume);
  info.loss_scale.left_out = info.step - updates;
  info.total_steps = 0;  // its schedule was another
  return info;
}

checkpoint::CheckpointInfo begun_at(const checkpoint::CheckpointInfo& start, checkpoint::CheckpointInfo run,
                                    std::int64_t total_steps) {
  run.step = start.step;
  run.epoch = start.epoch;
  run.position_samples = start.position_samples;
  run.total_steps = total_steps;
  run.so_far = start.so_far;
  run.so_far.virtual_time_s = 0;
  run.loss_scale = start.loss_scale;
  run.best = {};
  return run;
}

std::string stretched_schedule(const optim::ScheduleConfig& schedule, int recipe_warmup,
                               const checkpoint::CheckpointInfo& earlier, std::int64_t total_steps) {
  if (earlier.total_steps == 0 || earlier.total_steps == total_steps) return {};
  auto before = schedule;
  if (recipe_warmup > 0) before.warmup_steps = optim::shortened_warmup(recipe_warmup, earlier.total_steps);
  const double rate = optim::learning_rate(schedule, earlier.step + 1, total_steps);
  const double rate_before = optim::learning_rate(before, earlier.step + 1, earlier.total_steps);
  if (rate == rate_before) return {};
  return fmt::format(
      "the schedule {} was laid out for {} steps and is for {} from now on: step {} has the learning rate "
      "{:g}, not {:g}; keep --epochs and --limit-steps, and use --exit-after to stop early",
      schedule.name, earlier.total_steps, total_steps, earlier.step + 1, rate, rate_before);
}

}  // namespace dtrain::train
