#include "train/recovery/continuation.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

parallel::Pieces pieces(std::int64_t samples, int global_batch) {
  return {.samples = samples, .global_batch = global_batch, .micro_batches = 1, .data_ranks = 1};
}

/// After `step` steps of 100 samples in epochs of 1000.
state::ResumePoint after(std::int64_t step, std::int64_t left_out = 0) {
  const auto epoch = (step + 9) / 10;
  const auto position = (step - (epoch - 1) * 10) * 100;
  return {.folder = "there",
          .info = {.step = step,
                   .epoch = epoch,
                   .position_samples = position,
                   .total_steps = 40,
                   .so_far = {.evaluated = position == 1000},
                   .loss_scale = {.left_out = left_out}},
          .own = false};
}

TEST(ContinuationTest, TheSameSettingsChangeNothing) {
  const auto info = standing(after(13, 2), pieces(1000, 100), "exact");
  EXPECT_EQ(info.step, 13);
  EXPECT_EQ(info.total_steps, 40);
  EXPECT_EQ(info.loss_scale.left_out, 2);
}

TEST(ContinuationTest, AnotherRateGoesOnWithinAnEpoch) {
  const auto info = standing(after(13, 2), pieces(1000, 100), "keep");
  EXPECT_EQ(info.step, 13);
  EXPECT_EQ(info.total_steps, 0) << "its schedule is another";
  EXPECT_EQ(info.step - info.loss_scale.left_out, 11) << "updates of the optimizer's state";
}

TEST(ContinuationTest, OtherBatchesCountStepsAsIfAllEpochsHadHadThem) {
  const auto info = standing(after(20), pieces(1000, 200), "keep");
  EXPECT_EQ(info.step, 10);
  EXPECT_EQ(info.step - info.loss_scale.left_out, 20);
  EXPECT_TRUE(is_done(info, 1000));
}

TEST(ContinuationTest, AStateThatIsResetHasNoUpdates) {
  const auto info = standing(after(20), pieces(1000, 300), "reset");
  EXPECT_EQ(info.step, 8);
  EXPECT_EQ(info.step - info.loss_scale.left_out, 0);
}

TEST(ContinuationTest, ARunFromAnothersCheckpointSavesItsOwnOptionsAndNoBest) {
  auto other = after(13, 2);
  other.info.config = "learning-rate = 0.001";
  other.info.micro_batches = 1;
  other.info.best = {.step = 10, .loss = 0.5};
  other.info.so_far.virtual_time_s = 9;
  const auto start = standing(other, pieces(1000, 100), "keep");
  checkpoint::CheckpointInfo mine;
  mine.config = "learning-rate = 0.0005";
  mine.micro_batches = 4;
  const auto info = begun_at(start, mine, 60);
  EXPECT_EQ(info.config, "learning-rate = 0.0005");
  EXPECT_EQ(info.micro_batches, 4);
  EXPECT_EQ(info.best.step, 0);
  EXPECT_EQ(info.total_steps, 60);
  EXPECT_EQ(info.so_far.virtual_time_s, 0);
  EXPECT_EQ(info.step, 13);
  EXPECT_EQ(info.epoch, 2);
  EXPECT_EQ(info.position_samples, 300);
  EXPECT_EQ(info.loss_scale.left_out, 2);
}

TEST(ContinuationTest, WithinAnEpochOtherBatchesAreRefused) {
  for (const int batch : {60, 101, 200, 1000}) {
    try {
      standing(after(13), pieces(1000, batch), "keep");
      ADD_FAILURE() << batch;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

TEST(ContinuationTest, AnEpochThatGoesOnIsRecordedWhenItIsDone) {
  auto within = after(13);
  EXPECT_FALSE(rows_kept(within, std::nullopt, 1000)) << "another run's rows";
  within.own = true;
  EXPECT_EQ(rows_kept(within, std::nullopt, 1000)->epoch, 1);
  auto done = after(20);
  done.own = true;
  EXPECT_EQ(rows_kept(done, std::nullopt, 1000)->epoch, 2);
  EXPECT_EQ(rows_kept(std::nullopt, LostRanks{}, 1000)->step, 0);
}

TEST(ContinuationTest, ALossBeforeTheFirstCheckpointLeavesWhatHappenedWhereverTheRunBegan) {
  const auto kept = rows_kept(after(13), LostRanks{}, 1000);
  ASSERT_TRUE(kept) << "the events of the part before";
  EXPECT_EQ(kept->step, 0);
  EXPECT_EQ(kept->epoch, 0);
}

}  // namespace
}  // namespace dtrain::train
