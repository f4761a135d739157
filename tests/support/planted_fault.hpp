#pragma once

#include <cstdlib>
#include <string_view>

namespace dtrain {

/// Whether the program is to make this mistake: support/mutate.py has their names.
inline bool planted(std::string_view mistake) {
  const char* const chosen = std::getenv("DTRAIN_FAULT");
  return chosen != nullptr && chosen == mistake;
}

inline bool is_first_rank() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::string_view(rank) == "0";
}

}  // namespace dtrain
