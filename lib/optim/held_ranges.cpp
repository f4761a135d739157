#include "optim/held_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace dtrain::optim {

HeldRanges::HeldRanges(std::vector<Range> parts, std::int64_t count) : parts_(std::move(parts)) {
  std::int64_t end = 0;
  for (const Range& part : parts_) {
    require(part.begin >= end && part.begin <= part.end && part.end <= count,
            fmt::format("the part [{}, {}) leaves [0, {}) or overlaps another", part.begin, part.end, count),
            {.subject = "optimizer"});
    end = part.end;
    places_.push_back(count_);
    count_ += part.size();
  }
}

std::int64_t HeldRanges::place_of(const Range& range) const {
  const auto next = std::ranges::upper_bound(parts_, range.begin, {}, &Range::begin);
  require(next != parts_.begin() && range.end <= std::prev(next)->end,
          fmt::format("has no state for elements [{}, {})", range.begin, range.end),
          {.subject = "optimizer", .advice = "update the parts that it was made for"});
  const auto index = static_cast<std::size_t>(std::prev(next) - parts_.begin());
  return places_[index] + range.begin - parts_[index].begin;
}

}  // namespace dtrain::optim
