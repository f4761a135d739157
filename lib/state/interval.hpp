#pragma once

#include <string>

namespace dtrain::state {

/// A stretch of training or of time, as options write it: `500steps`, `1epoch`, `10min`, `90s`, `2h`.
struct Interval {
  enum class Unit { never, steps, epochs, seconds };
  Unit unit = Unit::never;
  double count = 0;
};

/// Throws Error (exit code 2), naming the option, for anything else, and for numbers below 1.
Interval parse_interval(const std::string& text, const std::string& option);
/// The seconds of a stretch of time. Throws likewise, also for steps and epochs.
double parse_time_s(const std::string& text, const std::string& option);

}  // namespace dtrain::state
