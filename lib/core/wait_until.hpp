#pragma once

#include <chrono>
#include <thread>

#include "core/clock.hpp"

namespace dtrain {

/// Calls `fulfilled` with `pause` between the calls until it returns true, or until steady_s() reaches
/// `end_s`: at least once, and once more after the last pause. Returns what the last call returned. Throws
/// what `fulfilled` throws.
template <typename Predicate>
bool wait_until(double end_s, std::chrono::milliseconds pause, Predicate&& fulfilled) {
  while (!fulfilled()) {
    if (steady_s() >= end_s) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace dtrain
