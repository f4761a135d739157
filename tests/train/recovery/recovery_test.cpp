#include "train/recovery/recovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "core/error.hpp"
#include "train/recovery/fake_ranks.hpp"

namespace dtrain::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// One of four ranks. What it saves, and of which losses.
class RecoveryTest : public testing::Test {
 protected:
  bool leave(bool holds_state = true) {
    return recovery_.leave_lost_behind(holds_state, [this](const LostRanks& lost, bool all_hold_state) {
      saved_.push_back(lost.in_words() + (all_hold_state ? ", all hold state" : ""));
      if (const auto happens = std::exchange(while_saving_, nullptr)) happens();
    });
  }

  FakeRanks ranks_{4};
  Recovery recovery_{RunConfig(), ranks_};
  std::function<void()> while_saving_;
  std::vector<std::string> saved_;
};

TEST(RecoveryWantedTest, IsOnWhereMpiCanAndTheOptionsWantIt) {
  FakeRanks ranks(2);
  RunConfig config;
  EXPECT_TRUE(Recovery(config, ranks).may_lose_ranks());
  config.on_failure = "recover";
  EXPECT_TRUE(Recovery(config, ranks).is_on());
  config.on_failure = "abort";
  EXPECT_FALSE(Recovery(config, ranks).is_on());
  config.on_failure = "auto";
  ranks.recovers = false;
  EXPECT_FALSE(Recovery(config, ranks).is_on());
}

TEST(RecoveryWantedTest, ARankAloneLeavesNoneBehind) {
  FakeRanks ranks(1);
  Recovery recovery(RunConfig(), ranks);
  EXPECT_TRUE(recovery.is_on()) << "a spare may take its place";
  EXPECT_FALSE(recovery.leave_lost_behind(true, [](const auto&, bool) { FAIL() << "nothing is lost"; }));
  EXPECT_THAT(ranks.done, IsEmpty());
}

TEST_F(RecoveryTest, ARequestToStopOutlivesThePartThatItCameIn) {
  using Voice = comm::StopSignals::Voice;
  EXPECT_FALSE(recovery_.signals(Voice::silent).asked());
  ranks_.lose({1});
  EXPECT_TRUE(leave());
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_TRUE(recovery_.signals(Voice::silent).asked());
}

TEST_F(RecoveryTest, SurvivorsSaveWhatTheyHoldAndThenTakeTheirPlaces) {
  ranks_.lose({1});
  EXPECT_TRUE(leave());
  EXPECT_TRUE(recovery_.has_left());
  EXPECT_FALSE(recovery_.behind()) << "the part that trains had no loss before it";
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_FALSE(recovery_.has_left());
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(1));
  EXPECT_GE(recovery_.behind()->agreed_s, recovery_.behind()->noticed_s);
  EXPECT_THAT(saved_, ElementsAre("rank 1, all hold state"));
  EXPECT_THAT(ranks_.done, ElementsAre("meet with state", "call up to 4")) << "they meet once";
}

TEST_F(RecoveryTest, SurvivorsWaitLongerForOnesThatWriteACheckpoint) {
  const RunConfig config;
  const auto nothing = [](const auto&, bool) {};
  ranks_.lose({1});
  recovery_.leave_lost_behind(true, nothing);
  recovery_.regroup(4);
  ranks_.lose({2});
  recovery_.leave_lost_behind(true, nothing, Recovery::Files::open);
  EXPECT_THAT(ranks_.limits_s,
              ElementsAre(config.comm.timeout_s, config.comm.timeout_s, config.files_limit_s()));
}

TEST_F(RecoveryTest, ASpareWaitsForSurvivorsThatSaveWhatTheyHold) {
  ranks_.be_spare();
  ranks_.lose({1});
  recovery_.regroup(4);
  EXPECT_THAT(ranks_.limits_s, ElementsAre(RunConfig().files_limit_s(), RunConfig().files_limit_s()));
}

TEST_F(RecoveryTest, WhatOneSurvivorDoesNotHoldIsKnownToAll) {
  ranks_.lose({1, 3});
  EXPECT_TRUE(leave(false));
  ranks_.others_hold_state = false;
  ranks_.lose({2});
  EXPECT_TRUE(leave(true));
  EXPECT_THAT(saved_, ElementsAre("ranks 1, 3", "rank 2"));
}

TEST_F(RecoveryTest, NothingIsSavedWhereNoRankIsGone) {
  EXPECT_FALSE(leave());
  EXPECT_FALSE(recovery_.has_left());
  EXPECT_THAT(saved_, IsEmpty());
  EXPECT_FALSE(recovery_.regroup(4));
  EXPECT_FALSE(recovery_.behind());
  EXPECT_THAT(ranks_.done, ElementsAre("meet with state", "meet")) << "no spare is called";
}

TEST_F(RecoveryTest, ALossWhileTheySaveIsLeftBehindWithTheFirst) {
  ranks_.lose({1});
  while_saving_ = [this] {
    ranks_.lose({2});
    throw lost_rank();
  };
  EXPECT_TRUE(leave());
  EXPECT_THAT(saved_, ElementsAre("rank 1, all hold state", "ranks 1, 2, all hold state"));
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(1, 2));
}

TEST_F(RecoveryTest, ARankThatOnlySeemedLostWhileTheySaveCostsTheSavingOnly) {
  ranks_.lose({1});
  while_saving_ = [] { throw lost_rank(); };
  EXPECT_TRUE(leave());
  EXPECT_THAT(saved_, ElementsAre("rank 1, all hold state"));
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(1));
}

TEST_F(RecoveryTest, AnotherErrorWhileTheySaveEndsTheRun) {
  ranks_.lose({1});
  while_saving_ = [] { throw checkpoint_error("cannot be written", "step 7", "free space"); };
  EXPECT_THROW(leave(), Error);
  EXPECT_FALSE(recovery_.has_left());
}

TEST_F(RecoveryTest, ALossWhileSparesAreCalledIsLeftBehindToo) {
  ranks_.lose({1});
  EXPECT_TRUE(leave());
  ranks_.while_calling_spares = [this] {
    ranks_.lose({3});
    throw lost_rank();
  };
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(1, 3));
  EXPECT_THAT(ranks_.done, ElementsAre("meet with state", "call up to 4", "meet", "call up to 4"))
      << "what they held is saved already";
}

TEST_F(RecoveryTest, ARankThatIsThereAndDoesNotComeEndsTheRun) {
  ranks_.lose({1});
  EXPECT_TRUE(leave());
  ranks_.while_calling_spares = [] { throw lost_rank(); };
  EXPECT_FALSE(recovery_.regroup(4));
}

TEST_F(RecoveryTest, ARankThatHadNothingToSaveMeetsTheOthersOnItsWayToThem) {
  ranks_.lose({0});
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(0));
  EXPECT_THAT(ranks_.done, ElementsAre("meet", "call up to 4"));
}

TEST_F(RecoveryTest, EachPartKnowsTheLossBeforeItAndWhereAllPartsRan) {
  recovery_.keep({{.rank = 0, .generation = 0}, {.rank = 1, .generation = 0}});
  for (const int rank : {1, 2}) {
    ranks_.lose({rank});
    EXPECT_TRUE(leave());
    EXPECT_TRUE(recovery_.regroup(4));
    EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(rank));
    EXPECT_EQ(recovery_.topology().size(), 2);
    recovery_.recovered();
  }
}

TEST_F(RecoveryTest, ALossBeforeTheFirstStepAfterAnotherIsLeftBehindWithIt) {
  ranks_.lose({1});
  EXPECT_TRUE(leave());
  EXPECT_TRUE(recovery_.regroup(4));
  const auto noticed_s = recovery_.behind()->noticed_s;
  ranks_.lose({3});
  EXPECT_TRUE(leave());
  EXPECT_TRUE(recovery_.regroup(4));
  EXPECT_THAT(saved_, ElementsAre("rank 1, all hold state", "rank 3, all hold state"));
  EXPECT_THAT(recovery_.behind()->ranks, ElementsAre(1, 3));
  EXPECT_EQ(recovery_.behind()->noticed_s, noticed_s);
}

}  // namespace
}  // namespace dtrain::train
