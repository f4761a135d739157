#include "core/running_time.hpp"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(RunningTimeTest, CountsTheTimeBetweenLooks) {
  RunningTime time(1.0, 5 * kSecond);
  EXPECT_DOUBLE_EQ(time.look(5 * kSecond + kSecond / 2), 0.5);
  EXPECT_DOUBLE_EQ(time.look(6 * kSecond), 1.0);
}

TEST(RunningTimeTest, AProcessThatWasSuspendedHasNotWaitedMeanwhile) {
  RunningTime time(1.0, 0);
  time.look(kSecond / 2);
  EXPECT_DOUBLE_EQ(time.look(3600 * kSecond), 1.5);
  EXPECT_DOUBLE_EQ(time.look(3600 * kSecond + kSecond / 4), 1.75);
}

TEST(RunningTimeTest, ALookBackCountsNothing) {
  RunningTime time(1.0, kSecond);
  EXPECT_DOUBLE_EQ(time.look(kSecond / 2), 0);
  EXPECT_DOUBLE_EQ(time.look(kSecond + kSecond / 2), 0.5);
}

TEST(RunningTimeTest, AShortLimitPassesOnlyAfterSeveralLooks) {
  EXPECT_DOUBLE_EQ(RunningTime::gap_for(300), 1.0);
  EXPECT_DOUBLE_EQ(RunningTime::gap_for(2), 0.5);
  EXPECT_DOUBLE_EQ(RunningTime::gap_for(0), 1.0);
}

}  // namespace
}  // namespace dtrain
