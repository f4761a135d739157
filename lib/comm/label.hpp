#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::comm {

/// Names one operation in errors; put into words only when there is one.
struct Label {
  std::string_view operation;  ///< `all_reduce`, ...
  std::string_view group;      ///< Lives as long as the group.
  std::uint64_t number = 0;    ///< Counts the group's operations from 1.

  std::string text() const;  ///< `all_reduce number 12 of group data`.
};

}  // namespace dtrain::comm
