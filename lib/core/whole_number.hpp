#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "core/error.hpp"

namespace dtrain {

/// A JSON value of nlohmann's as a whole number; nothing where it is something else, or does not fit: the
/// library would cut a fraction off, and has no defined result for what is too large.
template <class Json>
std::optional<std::int64_t> whole_number(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() &&
      json.template get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return std::nullopt;
  return json.template get<std::int64_t>();
}

/// The same; throws Error where there is none.
template <class Json>
std::int64_t required_whole_number(const Json& json) {
  if (const auto number = whole_number(json)) return *number;
  throw Error("has something else where a whole number belongs", {});
}

}  // namespace dtrain
