#pragma once

#include <algorithm>
#include <cstddef>

#include "core/slice.hpp"

namespace dtrain::comm {

/// Part `index` of `parts` of `count` elements of `element_bytes`, cut at multiples of 64 bytes, so that two
/// ranks never write to one cache line. Internal cuts only; reduce_scatter and all_gather use part_of.
inline Range aligned_part(std::size_t count, std::size_t element_bytes, int index, int parts) {
  const std::size_t unit = 64 / element_bytes;
  const std::size_t units = (count + unit - 1) / unit;
  const Range range = part_of(static_cast<std::int64_t>(units), index, parts);
  const auto limit = static_cast<std::int64_t>(count);
  const auto elements = static_cast<std::int64_t>(unit);
  return {std::min(range.begin * elements, limit), std::min(range.end * elements, limit)};
}

/// `count` as indices and pointers want it.
inline std::size_t size_of_range(const Range& range) { return static_cast<std::size_t>(range.size()); }

}  // namespace dtrain::comm
