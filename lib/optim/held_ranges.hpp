#pragma once

#include <cstdint>
#include <vector>

#include "core/slice.hpp"

namespace dtrain::optim {

/// What an optimizer has state for, of flat parameters: some ranges, whose state lies one behind the other.
class HeldRanges {
 public:
  /// `parts`: ascending, disjoint, within [0, count). Throws Error for others.
  HeldRanges(std::vector<Range> parts, std::int64_t count);

  std::int64_t count() const { return count_; }  ///< Elements of all parts.
  /// Where the state of `range` begins. Throws Error unless one part has all of it.
  std::int64_t place_of(const Range& range) const;

 private:
  std::vector<Range> parts_;
  std::vector<std::int64_t> places_;  // of their first elements
  std::int64_t count_ = 0;
};

}  // namespace dtrain::optim
