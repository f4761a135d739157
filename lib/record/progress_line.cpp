#include "record/progress_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/clock.hpp"

namespace dtrain::record {
namespace {

constexpr int kBarWidth = 24;
constexpr double kRedrawInterval_s = 0.1;

std::string duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

/// In [0, 1].
double done_in_epoch(const ProgressState& state) {
  return state.steps > 0 ? static_cast<double>(state.step) / static_cast<double>(state.steps) : 1.0;
}

}  // namespace

std::string progress_text(const ProgressState& state) {
  const double done = done_in_epoch(state);
  const auto filled = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * kBarWidth);
  return fmt::format("epoch {}/{} [{}{}] {:3.0f} %  loss {:.4f}  {:.0f} samples/s  {} left", state.epoch,
                     state.epochs, std::string(filled, '#'), std::string(kBarWidth - filled, '.'), 100 * done,
                     state.loss, state.samples_per_s, duration(state.seconds_left));
}

std::string progress_line(const ProgressState& state) {
  const double done = done_in_epoch(state);
  return fmt::format("step {}/{}  epoch {}/{}  {:.0f} %  loss {:.4f}  {:.0f} samples/s  {} left",
                     state.run_step, state.run_steps, state.epoch, state.epochs, 100 * done, state.loss,
                     state.samples_per_s, duration(state.seconds_left));
}

ProgressLine::ProgressLine(std::FILE* out, Style style, const Pace& pace)
    : out_(out), style_(style), pace_(pace), begun_s_(steady_s()), last_s_(begun_s_) {}

void ProgressLine::show(const ProgressState& state) {
  if (style_ == Style::none) return;
  const double now = steady_s();
  if (style_ == Style::lines) {
    constexpr double kShare = 0.05;
    if (now - last_s_ < std::clamp(kShare * (now - begun_s_), pace_.least_s, pace_.most_s)) return;
    last_s_ = now;
    fmt::print(out_, "{}\n", progress_line(state));
    std::fflush(out_);
    return;
  }
  if (drawn_ && now - last_s_ < kRedrawInterval_s) return;
  last_s_ = now;
  drawn_ = true;
  fmt::print(out_, "\r\033[K{}", progress_text(state));
  std::fflush(out_);
}

void ProgressLine::clear() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
}

}  // namespace dtrain::record
