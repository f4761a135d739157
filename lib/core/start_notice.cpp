#include "core/start_notice.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <sstream>
#include <utility>

namespace dtrain {
namespace {

/// Since this process was started, the loading of its libraries included; proc(5), field 22 of stat.
double age_s() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');  // the name may hold anything
  std::istringstream fields(name_ends == std::string::npos ? std::string() : text.substr(name_ends + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double started_ticks = 0;
  timespec now = {};
  if (!(fields >> started_ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double since_boot_s = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return since_boot_s - started_ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

StartNotice::StartNotice(std::string starter, std::FILE* out, const Patience& patience)
    : starter_(std::move(starter)),
      out_(out),
      least_s_(patience.least_s),
      stages_{{"the program is loaded", 0}},
      thread_([this, patience] { watch(patience); }) {}

StartNotice::~StartNotice() { done(); }

void StartNotice::at(std::string stage) {
  const std::scoped_lock lock(mutex_);
  stages_.push_back({std::move(stage), age_s()});
}

void StartNotice::done() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  if (!has_spoken_) return;
  const double now_s = age_s();
  fmt::print(out_, "started    after {:.0f} s{}\n", now_s, summary(now_s));
  std::fflush(out_);
}

std::string StartNotice::summary(double now_s) const {
  std::string text;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const double end_s = i + 1 < stages_.size() ? stages_[i + 1].since_s : now_s;
    const double took_s = end_s - stages_[i].since_s;
    if (took_s < least_s_) continue;
    text += fmt::format("{}{} {:.0f} s", text.empty() ? ": " : ", ", stages_[i].name, took_s);
  }
  return text;
}

void StartNotice::watch(const Patience& patience) {
  std::unique_lock lock(mutex_);
  double wait_s = patience.first_s - age_s();
  while (!over_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] { return is_over_; })) {
    fmt::print(out_, "starting   {}: {:.0f} s so far: {}\n", starter_, age_s(), stages_.back().name);
    std::fflush(out_);
    has_spoken_ = true;
    wait_s = patience.next_s;
  }
}

}  // namespace dtrain
