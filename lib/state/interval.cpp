#include "state/interval.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "core/error.hpp"

namespace dtrain::state {

namespace {

/// Nothing where the text is none.
std::optional<Interval> interval_of(const std::string& text) {
  using Unit = Interval::Unit;
  struct Meaning {
    Unit unit;
    double factor;
  };
  static const std::map<std::string_view, Meaning> kUnits = {
      {"step", {Unit::steps, 1}},    {"steps", {Unit::steps, 1}},   {"epoch", {Unit::epochs, 1}},
      {"epochs", {Unit::epochs, 1}}, {"s", {Unit::seconds, 1}},     {"min", {Unit::seconds, 60}},
      {"h", {Unit::seconds, 3600}},  {"d", {Unit::seconds, 86400}},
  };
  double count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  const auto place = error == std::errc() ? kUnits.find(std::string_view(rest, end)) : kUnits.end();
  const bool counts = place != kUnits.end() && place->second.unit != Unit::seconds;
  if (place == kUnits.end() || !std::isfinite(count) || !(count > 0) ||
      (counts && (count < 1 || count != std::floor(count)))) {
    return std::nullopt;
  }
  return Interval{.unit = place->second.unit, .count = count * place->second.factor};
}

}  // namespace

Interval parse_interval(const std::string& text, const std::string& option) {
  const auto interval = interval_of(text);
  if (interval) return *interval;
  throw usage_error(fmt::format("\"{}\" is no stretch of training or time", text), option,
                    "write one such as 500steps, 1epoch, 10min or 2h");
}

double parse_time_s(const std::string& text, const std::string& option) {
  const auto interval = interval_of(text);
  if (interval && interval->unit == Interval::Unit::seconds) return interval->count;
  throw usage_error(fmt::format("\"{}\" is not a time", text), option, "write one such as 30s, 55min or 2h");
}

}  // namespace dtrain::state
