#pragma once

#include <cstdint>
#include <limits>

namespace dtrain::record {

/// The steps whose spans a trace has: from `first` to `last`.
struct TraceWindow {
  std::int64_t first = 0;  ///< 0: also what lies between steps.
  std::int64_t last = std::numeric_limits<std::int64_t>::max();
  bool has(std::int64_t step) const { return step >= first && step <= last; }
};

}  // namespace dtrain::record
