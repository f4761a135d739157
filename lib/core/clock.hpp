#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

/// Nanoseconds of the machine's steady clock: for differences on one node only.
std::int64_t steady_ns() noexcept;

/// Seconds of the same clock.
inline double steady_s() noexcept { return static_cast<double>(steady_ns()) * 1e-9; }

/// Seconds since 1970 of the wall clock, which other nodes have too, a little apart.
double wall_s() noexcept;

/// The wall clock as `2026-11-21T06:05:00.123Z`, UTC, milliseconds.
std::string utc_now();

/// Seconds since 1970 of such a text; NaN when it is none.
double seconds_of_utc(const std::string& text);

}  // namespace dtrain
