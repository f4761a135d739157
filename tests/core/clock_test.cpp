#include "core/clock.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

namespace dtrain {
namespace {

TEST(ClockTest, ReadsWhatItWrites) {
  EXPECT_DOUBLE_EQ(seconds_of_utc("1970-01-02T00:00:01.250Z"), 86401.25);
  EXPECT_DOUBLE_EQ(seconds_of_utc("2026-11-21T06:00:00.500Z") - seconds_of_utc("2026-11-20T06:00:00.000Z"),
                   86400.5);
  const double now = seconds_of_utc(utc_now());
  EXPECT_NEAR(now, static_cast<double>(std::time(nullptr)), 2.0);
}

TEST(ClockTest, OtherTextIsNoTime) {
  EXPECT_TRUE(std::isnan(seconds_of_utc("")));
  EXPECT_TRUE(std::isnan(seconds_of_utc("yesterday")));
}

}  // namespace
}  // namespace dtrain
