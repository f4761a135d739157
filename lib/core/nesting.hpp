#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrain {

/// What JSON and TOML from outside may hold: more is refused before it is parsed, because a parser takes many
/// times the text's size for it, or a call for each level.
struct NestingLimits {
  std::size_t depth = 64;
  std::size_t values = 4'000'000;     ///< Of objects and lists, counted by their commas.
  std::size_t dots_of_a_line = 1000;  ///< TOML: `a.b.c` is a table in a table in a table.
};

/// Why such a text is refused, as `is nested in more than 64 levels`; empty: it is not. Text in quotes does
/// not count.
std::string refused_json(std::string_view text, const NestingLimits& limits = {});
std::string refused_toml(std::string_view text,
                         const NestingLimits& limits = {.depth = 16, .values = 10'000, .dots_of_a_line = 32});

}  // namespace dtrain
