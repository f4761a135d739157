// Reports of runs whose ranks are not all there from the beginning to the end, and of long ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "record/rank_recorder.hpp"
#include "record/results_writer.hpp"
#include "record/run_reader.hpp"
#include "report/report.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::app {
namespace {

using testing::HasSubstr;
using testing::Not;

class ReportOfAChangingRunTest : public testing::Test {
 protected:
  ReportOfAChangingRunTest() {
    for (int rank = 0; rank < 3; ++rank) {
      recorders_.push_back(std::make_unique<record::RankRecorder>(
          library_, record::RankRecorderOptions{
                        .path = record::rank_path(run_, rank), .rank = rank, .flush_interval_s = 3600}));
    }
    results_.topology({{.rank = 0, .hostname = "n0"},
                       {.rank = 1, .hostname = "n0"},
                       {.rank = 2, .node = 1, .hostname = "n1"}});
  }

  void lose_rank_2() {
    results_.topology({{.rank = 0, .hostname = "n0"},
                       {.rank = 1, .hostname = "n0"},
                       {.rank = 2, .node = 1, .hostname = "n1", .left_at_s = 5},
                       {.rank = 0, .hostname = "n0", .generation = 1},
                       {.rank = 1, .hostname = "n0", .generation = 1}});
  }

  void steps(int ranks, std::int64_t first, std::int64_t last) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::int64_t step = first; step <= last; ++step)
        recorders_[static_cast<std::size_t>(rank)]->step(
            {.step = step, .epoch = 1, .loss = 0.5, .weight = 16, .time_s = 1});
      recorders_[static_cast<std::size_t>(rank)]->flush();
    }
  }

  std::string followed(const std::function<bool()>& meanwhile) {
    std::ostringstream out;
    report(library_, {.runs = {run_}, .follow = true, .follow_interval_s = 0.001, .step_interval_s = 0}, out,
           meanwhile);
    return out.str();
  }

  h5::Library library_;
  test::ScratchFolder folder_;
  std::string run_ = folder_.file("run");
  record::ResultsWriter results_{library_, run_, {.name = "run", .world_size = 3}};
  std::vector<std::unique_ptr<record::RankRecorder>> recorders_;
};

TEST_F(ReportOfAChangingRunTest, FollowingSaysTheStepsOfTheRanksThatAreLeft) {
  steps(3, 1, 10);
  int looks = 0;
  const std::string text = followed([&] {
    ++looks;
    if (looks == 1) lose_rank_2();
    if (looks == 2) steps(2, 11, 30);
    return looks == 4;
  });
  EXPECT_THAT(text, HasSubstr("  step 10 of epoch 1: loss 0.5"));
  EXPECT_THAT(text, HasSubstr("  step 30 of epoch 1: loss 0.5")) << "rank 2 has left at step 10";
}

TEST_F(ReportOfAChangingRunTest, NodesAreThoseOfTheNewestRanks) {
  EXPECT_THAT(followed([] { return true; }), HasSubstr("3 ranks on 2 nodes"));
  lose_rank_2();
  EXPECT_THAT(followed([] { return true; }), HasSubstr("ranks on 1 node"));
}

TEST_F(ReportOfAChangingRunTest, ALossIsThatOfAllRanksHoweverFarApartTheirFilesAre) {
  for (std::int64_t step = 1; step <= 2000; ++step) {
    if (step <= 1000) recorders_[0]->step({.step = step, .epoch = 1, .loss = 0.2, .weight = 16, .time_s = 1});
    for (const std::size_t rank : {1U, 2U})
      recorders_[rank]->step({.step = step, .epoch = 1, .loss = 0.8, .weight = 16, .time_s = 1});
  }
  for (const auto& recorder : recorders_) recorder->flush();
  int looks = 0;
  EXPECT_THAT(followed([&] { return ++looks == 2; }), HasSubstr("  step 1,000 of epoch 1: loss 0.6"));
}

TEST_F(ReportOfAChangingRunTest, OfALongRunTheNewestStepsTell) {
  steps(3, 1, 2000);
  for (const std::int64_t cut : {0, 0}) recorders_[0]->step({.step = cut});  // by a kill
  recorders_[0]->flush();
  const auto newest = record::read_run(library_, run_, record::Detail::newest_steps);
  ASSERT_EQ(newest.ranks.size(), 3U);
  EXPECT_EQ(newest.ranks[0].steps.rows, 510U);
  EXPECT_EQ(newest.ranks[1].steps.rows, 512U);
  EXPECT_EQ(newest.ranks[0].steps.column("step").back(), 2000);
  EXPECT_EQ(newest.ranks[1].steps.column("step").front(), 1489);
  for (const auto& recorder : recorders_) {
    recorder->epoch({.epoch = 1, .samples = 10, .train_time_s = 2000});
    recorder->flush();
  }
  std::ostringstream out;
  report(library_, {.runs = {run_}}, out);
  EXPECT_THAT(out.str(), HasSubstr("2,000"));
  EXPECT_THAT(out.str(), Not(HasSubstr("left out")));
}

}  // namespace
}  // namespace dtrain::app
