#include "parallel/strategy/sync_period.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

/// Rounds until the period was decided anew, all with the same mean loss.
std::int64_t after_an_interval(SyncPeriod& period, double loss) {
  for (std::int64_t steps = 0; steps < SyncPeriod::kInterval;) {
    const auto round = period.steps();
    period.round_done(loss * 8, 8, round);
    steps += round;
  }
  return period.steps();
}

TEST(SyncPeriodTest, ANumberStays) {
  SyncPeriod period("7");
  EXPECT_FALSE(period.adapts());
  EXPECT_EQ(after_an_interval(period, 1.0), 7);
  EXPECT_EQ(after_an_interval(period, 0.01), 7);
}

TEST(SyncPeriodTest, AdaptiveFollowsTheRootOfTheLossAndHalvesOnAPlateau) {
  SyncPeriod period("adaptive");
  period.round_done(4.0 * 8, 8, 16);  // the first round: F0 = 4
  const auto first = after_an_interval(period, 1.0);
  // (4 x 16 + 1 x 144) / 160 = 1.3 in the mean; ceil(16 sqrt(1.3 / 4)) = 10
  EXPECT_EQ(first, 10);
  EXPECT_EQ(after_an_interval(period, 1.0), 8);  // ceil(16 / 2): half as long, and 1 / 4 of the loss
  EXPECT_EQ(after_an_interval(period, 1.0), 4);  // no less: half
  EXPECT_EQ(after_an_interval(period, 1.0), 2);
  EXPECT_EQ(after_an_interval(period, 1.0), 1);
  EXPECT_EQ(after_an_interval(period, 9.0), 1) << "at least one step";
}

TEST(SyncPeriodTest, ItsStateRestoresIt) {
  SyncPeriod period("adaptive");
  period.round_done(32.0, 8, 16);
  period.round_done(8.0, 8, 16);
  SyncPeriod again("adaptive");
  again.state().copy_(period.state());
  for (int round = 0; round < 8; ++round)
    EXPECT_EQ(period.round_done(8.0, 8, 16), again.round_done(8.0, 8, 16)) << round;
  EXPECT_EQ(period.steps(), again.steps());
  EXPECT_EQ(period.steps(), 10);
}

TEST(SyncPeriodTest, RefusesWhatIsNoNumberOfSteps) {
  for (const std::string text : {"0", "-3", "often", "1.5", "", "2000000"}) {
    try {
      SyncPeriod period(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.subject(), "--sync-period");
    }
  }
}

}  // namespace
}  // namespace dtrain::parallel
