#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/types.hpp"

namespace dtrain::comm {

/// Names one operation in errors; put into words only when there is one.
struct Label {
  std::string_view operation;  ///< `all_reduce`, ...
  std::string_view group;      ///< Lives as long as the group.
  std::uint64_t number = 0;    ///< Counts the group's collectives, or this rank's messages in it, from 1.

  std::uint64_t group_id = 0;  ///< The same on all ranks of the group, another for each other group.
  const std::vector<int>* members = nullptr;  ///< World ranks; lives as long as the group.
  int peer = -1;                              ///< World rank at the other end of a message; -1: a collective.
  std::uint64_t count = 0;                    ///< Elements that this rank passed; 0 where there are none.
  DataType type = DataType::float32;

  std::string text() const;  ///< `all_reduce number 12 of group data`.
};

/// A hash of what tells a group from all others.
std::uint64_t group_id(std::string_view name, const std::vector<int>& world_ranks);

}  // namespace dtrain::comm
