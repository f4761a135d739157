#include "comm/label.hpp"

#include <fmt/core.h>

namespace dtrain::comm {

std::string Label::text() const { return fmt::format("{} number {} of group {}", operation, number, group); }

// FNV-1a.
std::uint64_t group_id(std::string_view name, const std::vector<int>& world_ranks) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 1099511628211ULL; };
  for (const char letter : name) add(static_cast<unsigned char>(letter));
  for (const int rank : world_ranks) add(static_cast<std::uint64_t>(rank) + 256);
  return hash;
}

}  // namespace dtrain::comm
