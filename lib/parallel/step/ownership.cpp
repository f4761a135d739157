#include "parallel/step/ownership.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "core/error.hpp"

namespace dtrain::parallel {

Ownership even_ownership(int micro_batches, int ranks) {
  Ownership owned;
  for (int rank = 0; rank < ranks; ++rank) owned.push_back(part_of(micro_batches, rank, ranks));
  return owned;
}

int most_of(const Ownership& owned) {
  return static_cast<int>(std::ranges::max(owned, {}, &Range::size).size());
}

int most_owned(int micro_batches, int ranks) {
  const int even = (micro_batches + ranks - 1) / ranks;
  return std::max(even, std::min(2 * even, micro_batches - ranks + 1));
}

Ownership ownership_by_speed(int micro_batches, std::span<const double> seconds) {
  const auto ranks = static_cast<int>(seconds.size());
  require(micro_batches >= ranks, "has fewer micro-batches than ranks",
          {.subject = "a step", .advice = "report this as a bug"});
  const int most = most_owned(micro_batches, ranks);
  std::vector<int> counts(seconds.size(), 1);
  for (int left = micro_batches - ranks; left > 0; --left) {
    std::size_t first = 0;
    double soonest = std::numeric_limits<double>::infinity();
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const double done = (counts[rank] + 1) * seconds[rank];
      if (counts[rank] == most || done >= soonest) continue;
      soonest = done;
      first = rank;
    }
    ++counts[first];
  }
  Ownership owned;
  std::int64_t begin = 0;
  for (const int count : counts) {
    owned.push_back({begin, begin + count});
    begin += count;
  }
  return owned;
}

double slowest_seconds(const Ownership& owned, std::span<const double> seconds) {
  double slowest = 0;
  for (std::size_t rank = 0; rank < owned.size(); ++rank)
    slowest = std::max(slowest, static_cast<double>(owned[rank].size()) * seconds[rank]);
  return slowest;
}

}  // namespace dtrain::parallel
