#include "state/checkpoint_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::state {
namespace {

using testing::HasSubstr;
using Unit = Interval::Unit;

checkpoint::CheckpointInfo info_of(std::int64_t step, bool is_best = false) {
  checkpoint::CheckpointInfo info;
  info.step = step;
  if (is_best) info.best = {.step = step, .loss = 1.0 / static_cast<double>(step)};
  return info;
}

/// Writes nothing: begins with `info` and says how it ended.
void write(CheckpointPolicy& policy, checkpoint::CheckpointInfo info, const std::string& failure = "") {
  policy.begin(info, 0);
  if (failure.empty()) {
    policy.succeed();
  } else {
    policy.fail(failure);
  }
}

TEST(CheckpointPolicyTest, IsDueByStepsByEpochsOrByTheClock) {
  const CheckpointPolicy by_steps({Unit::steps, 20}, 0);
  EXPECT_FALSE(by_steps.due_after_step(19));
  EXPECT_TRUE(by_steps.due_after_step(40));
  EXPECT_FALSE(by_steps.due_after_epoch(20));
  EXPECT_FALSE(by_steps.due_at(1e9));
  const CheckpointPolicy by_epochs({Unit::epochs, 2}, 0);
  EXPECT_FALSE(by_epochs.due_after_epoch(3));
  EXPECT_TRUE(by_epochs.due_after_epoch(4));
  EXPECT_FALSE(by_epochs.due_after_step(4));
  const CheckpointPolicy at_the_end({}, 0);
  EXPECT_FALSE(at_the_end.due_after_step(1) || at_the_end.due_after_epoch(1) || at_the_end.due_at(1e9));
}

TEST(CheckpointPolicyTest, TheClockBeginsAnewWithEachCheckpoint) {
  CheckpointPolicy policy({Unit::seconds, 60}, 1000);
  EXPECT_FALSE(policy.due_at(1059));
  EXPECT_TRUE(policy.due_at(1060));
  auto info = info_of(7);
  policy.begin(info, 1090);
  EXPECT_FALSE(policy.due_at(1149)) << "while it is being written";
  policy.succeed();
  EXPECT_TRUE(policy.due_at(1150));
}

TEST(CheckpointPolicyTest, WithAShareEpochsAreLeftOutUntilOnePays) {
  CheckpointPolicy policy({Unit::epochs, 2}, 1000, 0.02);
  EXPECT_FALSE(policy.due_after_epoch(2)) << "the clock decides";
  EXPECT_FALSE(policy.pays_after_epoch(1, 1e9));
  EXPECT_TRUE(policy.pays_after_epoch(2, 1001)) << "what the first takes is not known";
  auto info = info_of(7);
  policy.begin(info, 1001);
  policy.succeed(3);
  EXPECT_FALSE(policy.pays_after_epoch(4, 1001 + 149));
  EXPECT_TRUE(policy.pays_after_epoch(4, 1001 + 151));
  EXPECT_FALSE(CheckpointPolicy({Unit::steps, 2}, 0, 0.02).pays_after_epoch(2, 1e9));
  EXPECT_FALSE(CheckpointPolicy({Unit::epochs, 2}, 0).pays_after_epoch(2, 1e9)) << "none is left out";
}

TEST(CheckpointPolicyTest, AStepThatIsNotTheBestIsWrittenWithTheBestBefore) {
  CheckpointPolicy policy({}, 0);
  write(policy, info_of(10, true));
  auto next = info_of(20);
  policy.begin(next, 0);
  EXPECT_EQ(next.best.step, 10);
  EXPECT_FALSE(policy.begun_is_best());
}

TEST(CheckpointPolicyTest, ABestThatCannotBeWrittenGivesWayToTheOneBefore) {
  CheckpointPolicy policy({}, 0);
  write(policy, info_of(10, true));
  auto next = info_of(20, true);
  policy.begin(next, 0);
  EXPECT_TRUE(policy.begun_is_best());
  EXPECT_EQ(policy.best().step, 20);
  EXPECT_TRUE(policy.fail("no space"));
  EXPECT_EQ(policy.best().step, 10);
  EXPECT_EQ(policy.saved_step(), 10);
  EXPECT_THAT(policy.problem(), HasSubstr("step 20 is missing: no space"));
}

TEST(CheckpointPolicyTest, TheSameFailureIsNewsOnce) {
  CheckpointPolicy policy({}, 0);
  auto info = info_of(10);
  policy.begin(info, 0);
  EXPECT_TRUE(policy.fail("no space"));
  policy.begin(info, 0);
  EXPECT_FALSE(policy.fail("no space"));
  policy.begin(info, 0);
  EXPECT_TRUE(policy.fail("read-only"));
}

TEST(CheckpointPolicyTest, ALaterGoodOneEndsTheProblem) {
  CheckpointPolicy policy({}, 0);
  write(policy, info_of(10), "no space");
  EXPECT_FALSE(policy.problem().empty());
  write(policy, info_of(20));
  EXPECT_TRUE(policy.problem().empty());
  EXPECT_EQ(policy.saved_step(), 20);
  EXPECT_EQ(policy.begun_step(), 0);
}

TEST(CheckpointPolicyTest, GoesOnFromWhatAnEarlierPartOfTheRunHasLeft) {
  CheckpointPolicy policy({}, 0);
  policy.go_on_from(30, {.step = 20, .loss = 0.5});
  auto next = info_of(40, true);
  policy.begin(next, 0);
  policy.fail("no space");
  EXPECT_EQ(policy.best().step, 20);
  EXPECT_EQ(policy.saved_step(), 30);
}

}  // namespace
}  // namespace dtrain::state
