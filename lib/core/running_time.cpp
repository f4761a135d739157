#include "core/running_time.hpp"

#include <algorithm>

namespace dtrain {
namespace {

constexpr double kLongestGapS = 1.0;  // a busy machine makes threads wait this long for a core

}  // namespace

double RunningTime::gap_for(double limit_s) {
  return limit_s > 0 ? std::min(kLongestGapS, limit_s / 4) : kLongestGapS;
}

double RunningTime::look(std::int64_t now_ns) {
  counted_ns_ += std::clamp<std::int64_t>(now_ns - last_ns_, 0, longest_gap_ns_);
  last_ns_ = std::max(last_ns_, now_ns);
  return static_cast<double>(counted_ns_) * 1e-9;
}

}  // namespace dtrain
