#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dtrain::data {

/// A date of a table, with or without a time.
struct Moment {
  double days = 0;        ///< Since 1970-01-01 00:00 UTC; a time without an offset counts as UTC.
  bool has_time = false;  ///< It says more than the day.
};

/// The whole cell as `2024-12-31`, `2024-12-31T18:30`, `2024-12-31 18:30:15.5`, with `Z`, `+01:00` or `+0100`
/// behind a time. Empty for anything else, also for a day that no calendar has.
/// Source: ISO 8601-1:2019, extended format of the calendar date.
std::optional<Moment> read_date(std::string_view cell);

/// What was meant as a date, in this or another order: 31.12.2024, 12/31/2024 18:30.
bool looks_like_date(std::string_view cell);

/// `2024-12-31`, with ` 18:30` behind it where the time is not midnight.
std::string date_text(double days);

/// What inputs a date becomes, by name: `years` since 1970 (the input counts from its own first date by
/// InputColumn::shift), and `year_sin`, `year_cos`, `week_sin`, `week_cos`, `day_sin` and `day_cos`: where it
/// stands in the year, in the week from Monday and in the day, as the sine and cosine of a full turn. Dates
/// without times have no parts of the day.
std::span<const std::string_view> date_parts(bool with_times);

/// Whether one of them has this name.
bool is_date_part(std::string_view name);

/// The value of such a part, which must be one of them.
double date_part(std::string_view part, double days);

}  // namespace dtrain::data
