#include "optim/loss_scaler.hpp"

#include <gtest/gtest.h>

namespace dtrain::optim {
namespace {

TEST(LossScaler, HalvesAndLeavesOutWhatIsNotFinite) {
  LossScaler scaler(LossScaler::Use::dynamic);
  EXPECT_EQ(scaler.scale(), 1024.0);
  EXPECT_TRUE(scaler.leaves_out(false));
  EXPECT_EQ(scaler.scale(), 512.0);
  EXPECT_FALSE(scaler.leaves_out(true));
  EXPECT_EQ(scaler.scale(), 512.0);
}

TEST(LossScaler, DoublesAfterTwoThousandGoodStepsInARow) {
  LossScaler scaler(LossScaler::Use::dynamic);
  for (int i = 0; i < 1999; ++i) scaler.leaves_out(true);
  scaler.leaves_out(false);  // begins anew
  for (int i = 0; i < 1999; ++i) scaler.leaves_out(true);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.leaves_out(true);
  EXPECT_EQ(scaler.scale(), 1024.0);
}

TEST(LossScaler, LeavesNothingOutThatNoScaleMends) {
  LossScaler scaler(LossScaler::Use::dynamic);
  int left_out = 0;
  while (scaler.leaves_out(false)) ++left_out;
  EXPECT_EQ(left_out, 10);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, GoesOnWhereItWas) {
  LossScaler before(LossScaler::Use::dynamic);
  before.leaves_out(false);
  before.leaves_out(true);
  LossScaler scaler(LossScaler::Use::dynamic);
  scaler.go_on_from(before.state());
  EXPECT_EQ(scaler.scale(), 512.0);
  EXPECT_EQ(scaler.state().good_steps, 1);
  scaler.go_on_from({});  // of a run in fp32
  EXPECT_EQ(scaler.scale(), 512.0);
}

TEST(LossScaler, CountsUpdatesWithoutTheStepsLeftOut) {
  LossScaler scaler(LossScaler::Use::dynamic);
  EXPECT_EQ(scaler.updates(1), 1);
  scaler.leaves_out(false);
  EXPECT_EQ(scaler.updates(2), 1);
  scaler.leaves_out(true);
  scaler.leaves_out(false);
  EXPECT_EQ(scaler.updates(4), 2);
  LossScaler resumed(LossScaler::Use::dynamic);
  resumed.go_on_from(scaler.state());
  EXPECT_EQ(resumed.updates(4), 2);
}

TEST(LossScaler, IsWhatItWasBeforeAStepThatIsTakenBack) {
  LossScaler scaler(LossScaler::Use::dynamic);
  scaler.keep(1);
  scaler.leaves_out(true);
  scaler.keep(2);
  EXPECT_TRUE(scaler.leaves_out(false));
  EXPECT_EQ(scaler.updates(3), 2);
  scaler.take_back(3);  // which this rank has not begun
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.take_back(2);
  EXPECT_EQ(scaler.scale(), 1024.0);
  EXPECT_EQ(scaler.state().good_steps, 1);
  EXPECT_EQ(scaler.updates(3), 3);
}

TEST(LossScaler, GoesOnCountingTheUpdatesOfAnotherRunsState) {
  for (const auto use : {LossScaler::Use::none, LossScaler::Use::dynamic}) {
    LossScaler scaler(use);
    scaler.go_on_from({.left_out = -90});  // 100 updates in 10 steps of a larger batch
    EXPECT_EQ(scaler.updates(11), 101);
    EXPECT_EQ(scaler.state().left_out, -90) << "the next checkpoint says so, too";
  }
}

TEST(LossScaler, IsOneWhereNoneIsWanted) {
  LossScaler scaler(LossScaler::Use::none);
  scaler.go_on_from({.scale = 8.0, .good_steps = 3});
  EXPECT_FALSE(scaler.leaves_out(false));
  EXPECT_EQ(scaler.scale(), 1.0);
}

}  // namespace
}  // namespace dtrain::optim
