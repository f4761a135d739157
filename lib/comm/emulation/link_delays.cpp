#include "comm/emulation/link_delays.hpp"

#include <algorithm>
#include <cmath>

namespace dtrain::comm {

std::int64_t LinkDelays::due_ns(int from, std::size_t bytes, std::int64_t now_ns) {
  const auto link = fabric_.link(from, rank_);
  auto& busy_until = busy_until_ns_[from];
  busy_until =
      std::max(busy_until, now_ns) + std::llround(static_cast<double>(bytes) / link.bytes_per_s * 1e9);
  return busy_until + std::llround(link.latency_s * 1e9);
}

}  // namespace dtrain::comm
