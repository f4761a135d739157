#include "core/parse_number.hpp"

#include <map>

namespace dtrain {

std::optional<std::int64_t> parse_size(std::string_view text) {
  static const std::map<std::string_view, double> kUnits = {
      {"", 1.0}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  constexpr double kTooMany = 0x1p62;
  const auto number = leading_number<double>(text);
  const auto unit = kUnits.find(number.rest);
  if (!number || unit == kUnits.end()) return std::nullopt;
  const double bytes = number.value * unit->second;
  if (!(bytes >= 1 && bytes < kTooMany)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace dtrain
