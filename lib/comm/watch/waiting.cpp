#include "comm/watch/waiting.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/mpi/mpi_check.hpp"

namespace dtrain::comm {
namespace {

constexpr double kYieldingS = 100e-6;  // most waits are shorter
constexpr double kShortestSleepS = 20e-6;

}  // namespace

Waiting::Waiting(double limit_s, double longest_pause_s)
    : limit_s_(limit_s), longest_pause_s_(longest_pause_s), time_(RunningTime::gap_for(limit_s)) {}

bool Waiting::pause() {
  if (waited_s_ < kYieldingS) {
    ::sched_yield();
  } else {
    const double sleep_s = std::clamp(waited_s_ / 8, kShortestSleepS, longest_pause_s_);
    std::this_thread::sleep_for(std::chrono::duration<double>(sleep_s));
  }
  waited_s_ = time_.look();
  return limit_s_ <= 0 || waited_s_ <= limit_s_;
}

void LossWatch::look() {
  if (steady_s() < next_s_) return;
  next_s_ = steady_s() + kLossLookS;
  check_losses(comm_, what_, 0);
}

}  // namespace dtrain::comm
