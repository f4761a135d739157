#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace dtrain {

/// The number that all of `text` is, in the notation of std::from_chars: no leading blank or `+`, a point in
/// fractions whatever the locale. Nothing where there is more, or the number does not fit T.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

}  // namespace dtrain
