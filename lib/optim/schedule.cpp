#include "optim/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace dtrain::optim {
namespace {

/// From `start` to `end` along half a cosine as `t` runs over [0, 1].
double cosine_between(double start, double end, double t) {
  return end + (start - end) / 2.0 * (1.0 + std::cos(std::numbers::pi * t));
}

/// Factors of the highest rate. `done` steps of `total` lie behind.
double step_factor(double t) {
  if (t < 0.5) return 1.0;
  return t < 0.75 ? 0.1 : 0.01;
}

double wsd_factor(double t) {
  constexpr double kDecayStart = 0.8;
  return t < kDecayStart ? 1.0 : (1.0 - t) / (1.0 - kDecayStart);
}

/// As torch.optim.lr_scheduler.OneCycleLR: pct_start 0.3, div_factor 25, final_div_factor 1e4, anneal cos.
double one_cycle_factor(double done, double total, double least) {
  const double start = 1.0 / 25.0;
  const double end = least > 0.0 ? least : start / 1e4;
  const double rise_end = 0.3 * total - 1.0;
  if (done <= rise_end) return cosine_between(start, 1.0, done / rise_end);
  const double fall = total - 1.0 - rise_end;
  return cosine_between(1.0, end, fall > 0.0 ? std::min((done - rise_end) / fall, 1.0) : 1.0);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = {"constant", "step", "cosine", "one_cycle", "linear", "wsd"};
  return kNames;
}

void ScheduleConfig::validate() const {
  require(std::ranges::count(schedule_names(), name) == 1, fmt::format("there is no schedule {}", name),
          {.subject = "--schedule",
           .advice = fmt::format("use one of {}", fmt::join(schedule_names(), ", ")),
           .code = ExitCode::usage});
  require(learning_rate != 0.0, "a learning rate of 0 trains nothing",
          {.subject = "--learning-rate", .advice = "use a small positive number", .code = ExitCode::usage});
  require(std::isfinite(learning_rate) && learning_rate > 0.0,
          fmt::format("learning rate {} is not a positive, finite number", learning_rate),
          {.subject = "--learning-rate", .advice = "use a small positive number", .code = ExitCode::usage});
  require(warmup_steps >= 0, fmt::format("{} warm-up steps are fewer than none", warmup_steps),
          {.subject = "--warmup-steps", .advice = "use 0 or more", .code = ExitCode::usage});
  require(warmup_steps == 0 || name != "one_cycle",
          "one_cycle warms up by itself, over the first 30 % of the steps",
          {.subject = "--warmup-steps",
           .advice = "leave it at 0, or use another --schedule such as cosine",
           .code = ExitCode::usage});
  require(least_rate == 0.0 || name != "constant", "the schedule constant never falls",
          {.subject = "--min-learning-rate",
           .advice = "leave it out, or use another --schedule such as cosine",
           .code = ExitCode::usage});
  require(least_rate >= 0.0 && least_rate < learning_rate,
          fmt::format("{} is not a rate from 0 to below the highest, {}", least_rate, learning_rate),
          {.subject = "--min-learning-rate",
           .advice = "use a part of --learning-rate, such as a tenth",
           .code = ExitCode::usage});
}

int shortened_warmup(int recipe_steps, std::int64_t total_steps) {
  return recipe_steps < total_steps ? recipe_steps : static_cast<int>(total_steps / 2);
}

double learning_rate(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps) {
  const double highest = schedule.learning_rate;
  if (step <= schedule.warmup_steps) {
    return highest * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps + 1);
  }
  const auto done = static_cast<double>(step - 1 - schedule.warmup_steps);
  const auto total = static_cast<double>(std::max<std::int64_t>(total_steps - schedule.warmup_steps, 1));
  const double t = std::min(done / total, 1.0);
  const double least = schedule.least_rate;
  const auto falling = [&](double factor) { return least + (highest - least) * factor; };
  if (schedule.name == "step") return std::max(highest * step_factor(t), least);
  if (schedule.name == "cosine") return falling(cosine_between(1.0, 0.0, t));
  if (schedule.name == "linear") return falling(1.0 - t);
  if (schedule.name == "wsd") return falling(wsd_factor(t));
  if (schedule.name == "one_cycle") return highest * one_cycle_factor(done, total, least / highest);
  return highest;
}

double clip_coefficient(double norm, double limit) {
  if (limit == 0.0) return 1.0;
  return std::min(limit / (norm + 1e-6), 1.0);
}

}  // namespace dtrain::optim
