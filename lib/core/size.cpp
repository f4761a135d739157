#include "core/size.hpp"

#include <charconv>
#include <map>
#include <system_error>

namespace dtrain {

std::optional<std::int64_t> parse_size(std::string_view text) {
  static const std::map<std::string_view, double> kUnits = {
      {"", 1.0}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  constexpr double kTooMany = 0x1p62;
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const auto unit = kUnits.find(text.substr(static_cast<std::size_t>(rest - text.data())));
  if (unit == kUnits.end()) return std::nullopt;
  const double bytes = number * unit->second;
  if (!(bytes >= 1 && bytes < kTooMany)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace dtrain
