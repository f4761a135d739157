#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace dtrain {

/// The number that a text begins with, and what follows it.
template <typename T>
struct LeadingNumber {
  T value{};
  std::string_view rest;  ///< All of the text where it begins with no number.
  std::errc error{};      ///< invalid_argument: no number; result_out_of_range: one that does not fit T.

  explicit operator bool() const { return error == std::errc(); }
};

/// Reads it in the notation of std::from_chars: no leading blank or `+`, a point in fractions whatever the
/// locale. `rest` points into `text`.
template <typename T>
LeadingNumber<T> leading_number(std::string_view text) {
  LeadingNumber<T> number;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number.value);
  number.rest = std::string_view(rest, static_cast<std::size_t>(end - rest));
  number.error = error;
  return number;
}

/// The number that all of `text` is, in the same notation. Nothing where there is more, or the number does
/// not fit T.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  const auto number = leading_number<T>(text);
  return number && number.rest.empty() ? std::optional(number.value) : std::nullopt;
}

/// Bytes, from text such as `512`, `4KiB`, `1.5GiB` or `2TiB`; nothing where it is not that, or below 1.
std::optional<std::int64_t> parse_size(std::string_view text);

}  // namespace dtrain
