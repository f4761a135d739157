#include "stage/stage_progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/clock.hpp"
#include "core/printable.hpp"

namespace dtrain::app {

StageProgress::StageProgress(std::FILE* out, bool terminal, const Pace& pace)
    : out_(out),
      terminal_(terminal),
      pause_s_(terminal ? pace.in_place_s : pace.lines_s),
      begun_s_(steady_s()),
      thread_([this] { watch(); }) {}

StageProgress::~StageProgress() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  thread_.join();
  if (drawn_ > 0) fmt::print(out_, "\r{:{}}\r", "", drawn_);
}

void StageProgress::at(std::string_view what, double fraction) {
  const std::scoped_lock lock(mutex_);
  what_ = what;
  fraction_ = fraction;
}

void StageProgress::watch() {
  std::unique_lock lock(mutex_);
  const auto pause = std::chrono::duration<double>(pause_s_);
  while (!over_.wait_for(lock, pause, [this] { return is_over_; }))
    if (!what_.empty()) draw(steady_s());
}

void StageProgress::draw(double now_s) {
  constexpr std::size_t kWidth = 60;
  const std::string share = fraction_ > 0 ? fmt::format("{:.0f} %  ", 100 * fraction_) : std::string();
  const std::string line = fmt::format("{}{}  {:.0f} s", share, printable(what_, kWidth), now_s - begun_s_);
  if (terminal_) {
    fmt::print(out_, "\r{:<{}}", line, drawn_);
    drawn_ = std::max(drawn_, line.size());
  } else {
    fmt::print(out_, "{}\n", line);
  }
  std::fflush(out_);
}

}  // namespace dtrain::app
