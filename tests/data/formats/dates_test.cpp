#include "data/formats/dates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dtrain::data {
namespace {

constexpr double kRounding = 1e-9;  // days; of a double around 20,000, and sines of such

double days_of(std::string_view cell) {
  const auto date = read_date(cell);
  return date ? date->days : std::nan("");
}

// Counted by Python's datetime.
TEST(DatesTest, DaysCountFrom1970) {
  EXPECT_EQ(days_of("1970-01-01"), 0);
  EXPECT_EQ(days_of("2024-02-29"), 19782);
  EXPECT_EQ(days_of("1969-12-31"), -1);
  EXPECT_NEAR(days_of("2024-12-31T18:30"), 20088 + 18.5 / 24, kRounding);
  EXPECT_NEAR(days_of("2024-12-31 18:30:15.5"), 20088 + (18.5 + 15.5 / 3600) / 24, kRounding);
  EXPECT_FALSE(read_date("2024-12-31")->has_time);
  EXPECT_TRUE(read_date("2024-12-31T00:00")->has_time);
}

TEST(DatesTest, OffsetsLeadToOneMoment) {
  for (const char* same : {"2024-12-31T18:30Z", "2024-12-31T19:30+01:00", "2024-12-31T13:00-0530"})
    EXPECT_NEAR(days_of(same), days_of("2024-12-31T18:30"), kRounding) << same;
}

TEST(DatesTest, WhatNoCalendarHasIsNoDate) {
  for (const char* odd :
       {"", "2024", "2023-02-29", "2024-13-01", "2024-00-10", "2024-1-01", "20240101", "2024-01-01T",
        "2024-01-01T24:00", "2024-01-01T12", "2024-01-01T12:60", "2024-01-01T12:30:", "2024-01-01T12:30:15.",
        "2024-01-01T12:30+1", "2024-01-01T12:30 ", "2024-01-01x", "-024-01-01", "2024-01-01T12:30+24:00",
        "2024-01-01T12:30Zulu"})
    EXPECT_FALSE(read_date(odd).has_value()) << odd;
}

TEST(DatesTest, OtherOrdersLookLikeDates) {
  for (const char* other : {"31.12.2024", "12/31/2024", "12/31/24 18:30", "2024-02-30", "2024/12/31"})
    EXPECT_TRUE(looks_like_date(other)) << other;
  for (const char* odd : {"1.5", "1.000.000,5", "a.b.c", "3+", "..", "1-2", "10.1.2.3"})
    EXPECT_FALSE(looks_like_date(odd)) << odd;
}

TEST(DatesTest, PartsGoRoundWithYearWeekAndDay) {
  EXPECT_NEAR(date_part("years", days_of("1970-01-01") + 365.2425 * 3), 3, kRounding);
  EXPECT_NEAR(date_part("year_sin", days_of("2024-01-01")), 0, kRounding);
  EXPECT_NEAR(date_part("year_cos", days_of("2024-07-02")), -1, kRounding);  // the 183rd day of 366 is over
  EXPECT_NEAR(date_part("week_sin", days_of("2024-12-30")), 0, kRounding);   // a Monday
  EXPECT_NEAR(date_part("week_cos", days_of("2025-01-01T12:00") + 1), std::cos(2 * M_PI * 3.5 / 7),
              kRounding);
  EXPECT_NEAR(date_part("week_cos", days_of("1969-12-29")), 1, kRounding);  // a Monday before 1970
  EXPECT_NEAR(date_part("day_sin", days_of("1969-12-29T06:00")), 1, kRounding);
  EXPECT_EQ(date_parts(false).size(), 5U);
  EXPECT_EQ(date_parts(true).size(), 7U);
  for (const auto part : date_parts(true)) EXPECT_TRUE(is_date_part(part));
  EXPECT_FALSE(is_date_part("month_sin"));
}

TEST(DatesTest, TextOfADateReadsBack) {
  for (const char* text : {"2024-12-31", "1969-12-31", "2024-02-29 18:30", "1970-01-01 00:01"})
    EXPECT_EQ(date_text(days_of(text)), text);
}

}  // namespace
}  // namespace dtrain::data
