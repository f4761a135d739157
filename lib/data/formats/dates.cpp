#include "data/formats/dates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "core/parse_number.hpp"

namespace dtrain::data {
namespace {

namespace chrono = std::chrono;

constexpr double kDaysOfYear = 365.2425;  // mean of the Gregorian calendar
constexpr double kMinutesOfDay = 24 * 60;
constexpr std::array<std::string_view, 7> kParts = {"years",    "year_sin", "year_cos", "week_sin",
                                                    "week_cos", "day_sin",  "day_cos"};
constexpr std::size_t kPartsOfDates = 5;  // the first of them

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/// Takes so many digits off the front of `text`.
std::optional<int> take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count || !std::ranges::all_of(text.substr(0, count), is_digit)) return std::nullopt;
  const auto number = parse_number<int>(text.substr(0, count));
  text.remove_prefix(count);
  return number;
}

bool take(std::string_view& text, char letter) {
  if (!text.starts_with(letter)) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<chrono::sys_days> take_day(std::string_view& text) {
  const auto year = take_digits(text, 4);
  if (!year || !take(text, '-')) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take(text, '-')) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day) return std::nullopt;
  const chrono::year_month_day date{chrono::year(*year), chrono::month(static_cast<unsigned>(*month)),
                                    chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return chrono::sys_days(date);
}

/// Minutes since midnight; takes `18:30`, `18:30:15` or `18:30:15.25` off the front.
std::optional<double> take_time(std::string_view& text) {
  const auto hour = take_digits(text, 2);
  if (!hour || *hour > 23 || !take(text, ':')) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || *minute > 59) return std::nullopt;
  double minutes = 60.0 * *hour + *minute;
  if (!take(text, ':')) return minutes;
  const auto second = take_digits(text, 2);
  if (!second || *second > 60) return std::nullopt;  // 60: a leap second
  minutes += *second / 60.0;
  if (!take(text, '.')) return minutes;
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  const auto fraction = parse_number<double>("0." + std::string(text.substr(0, end)));
  if (end == 0 || !fraction) return std::nullopt;
  text.remove_prefix(end);
  return minutes + *fraction / 60;
}

/// Minutes east of Greenwich; takes all that is left.
std::optional<double> take_offset(std::string_view& text) {
  if (text.empty() || text == "Z") {
    text = {};
    return 0;
  }
  const double sign = text.front() == '-' ? -1 : 1;
  if (!take(text, '+') && !take(text, '-')) return std::nullopt;
  const auto hours = take_digits(text, 2);
  take(text, ':');
  const auto minutes = take_digits(text, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59 || !text.empty()) return std::nullopt;
  return sign * (60.0 * *hours + *minutes);
}

double turn(std::string_view part, double share) {
  const double angle = 2 * std::numbers::pi * share;
  return part.ends_with("sin") ? std::sin(angle) : std::cos(angle);
}

}  // namespace

std::optional<Moment> read_date(std::string_view cell) {
  const auto day = take_day(cell);
  if (!day) return std::nullopt;
  const auto days = static_cast<double>(day->time_since_epoch().count());
  if (cell.empty()) return Moment{.days = days};
  if (!take(cell, 'T') && !take(cell, ' ')) return std::nullopt;
  const auto time = take_time(cell);
  if (!time) return std::nullopt;
  const auto east = take_offset(cell);
  if (!east) return std::nullopt;
  return Moment{.days = days + (*time - *east) / kMinutesOfDay, .has_time = true};
}

bool looks_like_date(std::string_view cell) {
  const auto day = cell.substr(0, cell.find_first_of(" T"));
  constexpr std::string_view kSeparators = "./-";
  const auto first = day.find_first_of(kSeparators);
  if (first == std::string_view::npos || first == 0 || first > 4) return false;
  const auto is_other = [&](char letter) { return letter != day[first] && !is_digit(letter); };
  return std::ranges::count(day, day[first]) == 2 && std::ranges::none_of(day, is_other) && day.size() >= 6 &&
         is_digit(day.back());
}

std::string date_text(double days) {
  const auto minutes = static_cast<long>(std::lround(days * kMinutesOfDay));
  const auto whole = static_cast<int>(std::floor(static_cast<double>(minutes) / kMinutesOfDay));
  const chrono::year_month_day date{chrono::sys_days(chrono::days(whole))};
  const long rest = minutes - whole * static_cast<long>(kMinutesOfDay);
  std::string text = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (rest != 0) text += fmt::format(" {:02}:{:02}", rest / 60, rest % 60);
  return text;
}

std::span<const std::string_view> date_parts(bool with_times) {
  return std::span(kParts).first(with_times ? kParts.size() : kPartsOfDates);
}

bool is_date_part(std::string_view name) { return std::ranges::find(kParts, name) != kParts.end(); }

double date_part(std::string_view part, double days) {
  if (part == "years") return days / kDaysOfYear;
  const double midnight = std::floor(days);
  if (part.starts_with("day")) return turn(part, days - midnight);
  if (part.starts_with("week")) {
    constexpr double kThursday = 3;  // 1970-01-01 was one; Monday is 0
    return turn(part, std::fmod(std::fmod(days + kThursday, 7) + 7, 7) / 7);
  }
  const chrono::sys_days day{chrono::days(static_cast<int>(midnight))};
  const auto year = chrono::year_month_day(day).year();
  const auto begin = chrono::sys_days(year / chrono::January / 1);
  const auto end = chrono::sys_days((year + chrono::years(1)) / chrono::January / 1);
  return turn(part, (days - static_cast<double>(begin.time_since_epoch().count())) /
                        static_cast<double>((end - begin).count()));
}

}  // namespace dtrain::data
