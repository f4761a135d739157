#pragma once

#include <cstdint>

#include "core/clock.hpp"

namespace dtrain {

/// The time that counts for a limit: that in which this process ran. The steady clock goes on while a job is
/// suspended; when it continues, every limit would have passed. So a gap between two looks counts as
/// `longest_gap_s` at most: a wait with a limit looks more often than that.
class RunningTime {
 public:
  explicit RunningTime(double longest_gap_s, std::int64_t now_ns = steady_ns())
      : longest_gap_ns_(static_cast<std::int64_t>(longest_gap_s * 1e9)), last_ns_(now_ns) {}

  /// For a limit of so many seconds; 0: there is none.
  static double gap_for(double limit_s);

  /// Seconds that count since the start.
  double look(std::int64_t now_ns = steady_ns());

 private:
  std::int64_t longest_gap_ns_;
  std::int64_t last_ns_;
  std::int64_t counted_ns_ = 0;
};

}  // namespace dtrain
