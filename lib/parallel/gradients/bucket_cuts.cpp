#include "parallel/gradients/bucket_cuts.hpp"

#include <algorithm>

namespace dtrain::parallel {
namespace {

// On CPU ranks the reduction is itself compute: overlap hides skew and links, not adding, so a small model
// goes in one bucket and a large one in pieces that a cache or a link takes in a few milliseconds.
constexpr std::int64_t kDefaultBucketBytes = std::int64_t{8} << 20;

}  // namespace

std::vector<Range> cut_buckets(const std::vector<FlatParameters::Entry>& entries, std::int64_t bucket_bytes,
                               std::int64_t element_bytes) {
  const auto limit = bucket_bytes > 0 ? bucket_bytes : kDefaultBucketBytes;
  std::vector<Range> buckets;
  for (const auto& entry : entries) {
    const auto end = FlatParameters::end_of(entry);
    const bool full = !buckets.empty() && (end - buckets.back().begin) * element_bytes > limit;
    const bool apart = !buckets.empty() && buckets.back().end != entry.offset;
    if (buckets.empty() || full || apart) buckets.push_back({entry.offset, end});
    buckets.back().end = end;
  }
  return buckets;
}

std::vector<std::size_t> buckets_of(const std::vector<FlatParameters::Entry>& entries,
                                    const std::vector<Range>& buckets) {
  std::vector<std::size_t> all;
  std::size_t bucket = 0;
  for (const auto& entry : entries) {
    while (bucket + 1 < buckets.size() && entry.offset >= buckets[bucket].end) ++bucket;
    all.push_back(bucket);
  }
  return all;
}

std::vector<int> uses_of(const std::vector<FlatParameters::Entry>& entries,
                         const std::vector<const models::Parameter*>& met_again) {
  std::vector<int> uses(entries.size(), 1);
  for (const auto* parameter : met_again) {
    const auto place = std::ranges::find(entries, parameter, &FlatParameters::Entry::parameter);
    if (place != entries.end()) ++uses[static_cast<std::size_t>(place - entries.begin())];
  }
  return uses;
}

}  // namespace dtrain::parallel
