#include "core/clock.hpp"

#include <fmt/chrono.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <limits>

namespace dtrain {

std::int64_t steady_ns() noexcept {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

double wall_s() noexcept {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string utc_now() {
  using namespace std::chrono;
  const auto now = floor<milliseconds>(system_clock::now());
  const auto seconds_part = floor<seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(seconds_part)),
                     (now - seconds_part).count());
}

double seconds_of_utc(const std::string& text) {
  std::tm date{};
  double seconds = 0;
  const int fields = std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lfZ", &date.tm_year, &date.tm_mon,
                                 &date.tm_mday, &date.tm_hour, &date.tm_min, &seconds);
  if (fields != 6) return std::numeric_limits<double>::quiet_NaN();
  date.tm_year -= 1900;
  date.tm_mon -= 1;
  return static_cast<double>(::timegm(&date)) + seconds;
}

}  // namespace dtrain
