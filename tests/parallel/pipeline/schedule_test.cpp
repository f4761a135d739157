#include "parallel/pipeline/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "parallel/pipeline/simulation.hpp"

namespace dtrain::parallel {
namespace {

struct Layout {
  Pipelining pipelining;
  int stages_per_rank;
};
constexpr Layout kLayouts[] = {{Pipelining::layerwise, 1},   {Pipelining::gpipe, 1},
                               {Pipelining::one_f_one_b, 1}, {Pipelining::eager, 1},
                               {Pipelining::interleaved, 2}, {Pipelining::interleaved, 3},
                               {Pipelining::interleaved, 4}};

TEST(ScheduleTest, EveryScheduleComesToItsEndWhateverTheNumberOfMicroBatches) {
  for (const auto& [pipelining, stages] : kLayouts) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int micro_batches = 0; micro_batches <= 33; ++micro_batches) {
        const auto schedule = make_schedule(pipelining, ranks, stages, micro_batches);
        EXPECT_NO_THROW(simulate(schedule))
            << name_of(pipelining) << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
        EXPECT_NO_THROW(simulate(make_forward_schedule(ranks, stages, micro_batches)));
      }
    }
  }
}

// The idle share of a pipeline, Narayanan et al. 2021: (p - 1) / (v m + p - 1), transfers taking no time.
TEST(ScheduleTest, TheIdleTimeIsThatOfTheFormula) {
  for (const auto& [pipelining, stages] : kLayouts) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (int micro_batches = ranks; micro_batches <= 32; ++micro_batches) {
        const auto idle = simulate(make_schedule(pipelining, ranks, stages, micro_batches)).idle_share;
        const double p = ranks;
        const double formula = (p - 1) / (stages * micro_batches + p - 1);
        EXPECT_NEAR(idle, pipelining == Pipelining::layerwise ? (p - 1) / p : formula, 1e-9)
            << name_of(pipelining) << ", " << ranks << " ranks, " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(ScheduleTest, OneFOneBKeepsFewActivationsAndGpipeAll) {
  const auto few = simulate(make_schedule(Pipelining::one_f_one_b, 4, 1, 16));
  const auto all = simulate(make_schedule(Pipelining::gpipe, 4, 1, 16));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(few.peak_live[static_cast<std::size_t>(rank)], 4 - rank);
    EXPECT_EQ(all.peak_live[static_cast<std::size_t>(rank)], 16);
  }
}

TEST(ScheduleTest, AnEagerPipelineKeepsOneMoreForEachRankBehindAndHidesTransfers) {
  const auto eager = make_schedule(Pipelining::eager, 4, 1, 16);
  const auto strict = make_schedule(Pipelining::one_f_one_b, 4, 1, 16);
  const auto run = simulate(eager);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(run.peak_live[static_cast<std::size_t>(rank)], 2 * (3 - rank) + 1);
  const ActionCosts costs{.forward = 1, .backward = 2, .transfer = 0.5};
  const double hidden = simulate(eager, costs).duration;
  EXPECT_LT(hidden, simulate(strict, costs).duration);
  EXPECT_DOUBLE_EQ(hidden, simulate(make_schedule(Pipelining::gpipe, 4, 1, 16), costs).duration)
      << "only the way in and out is left";
}

TEST(ScheduleTest, EveryStageTakesMicroBatchesBackInAscendingOrder) {
  const auto schedule = make_schedule(Pipelining::interleaved, 2, 3, 7);
  for (const auto& actions : schedule.of_rank) {
    std::vector<int> last(6, -1);
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::forward) continue;
      auto& before = last[static_cast<std::size_t>(action.stage)];
      EXPECT_GT(action.micro_batch, before);
      before = action.micro_batch;
    }
  }
}

TEST(SimulationTest, FindsWhatIsWrongWithASchedule) {
  const auto good = make_schedule(Pipelining::one_f_one_b, 2, 1, 3);
  auto dropped = good;
  for (auto& actions : dropped.of_rank)
    std::erase_if(actions, [](const Action& action) { return action.micro_batch == 1; });
  EXPECT_THROW(simulate(dropped), Error);

  auto twice = good;
  twice.of_rank[0].insert(twice.of_rank[0].begin(), twice.of_rank[0].front());
  EXPECT_THROW(simulate(twice), Error);

  auto stuck = good;  // backward before forward
  std::ranges::reverse(stuck.of_rank[1]);
  EXPECT_THROW(simulate(stuck), Error);

  auto half = good;  // a stage that keeps its gradient
  half.of_rank[0].pop_back();
  EXPECT_THROW(simulate(half), Error);
}

TEST(SimulationTest, DrawsASchedule) {
  EXPECT_EQ(drawing(make_schedule(Pipelining::one_f_one_b, 2, 1, 3)),
            "rank  0 | F1 F2       B1--- F3 B2---    B3---\n"
            "rank  1 |    F1 B1--- F2 B2--- F3 B3---\n");
}

TEST(SimulationTest, ARankMayHaveMoreStagesThanThereAreLetters) {
  const auto text = drawing(make_schedule(Pipelining::interleaved, 1, 60, 1));
  for (const char* cell : {"| F1a- ", " F1z- ", " F1aa ", " F1bh ", " B1bh-", " B1aa-", " B1z-"})
    EXPECT_NE(text.find(cell), std::string::npos) << cell;
  EXPECT_EQ(text.find('{'), std::string::npos);
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(ScheduleTest, UnknownNamesAndImpossibleNumbersAreRefused) {
  EXPECT_EQ(parse_pipelining("1f1b"), Pipelining::one_f_one_b);
  EXPECT_EQ(parse_pipelining("eager-1f1b"), Pipelining::eager);
  EXPECT_THROW(parse_pipelining("zigzag"), Error);
  EXPECT_THROW(make_schedule(Pipelining::gpipe, 2, 2, 4), Error);
  EXPECT_THROW(make_schedule(Pipelining::gpipe, 0, 1, 4), Error);
}

}  // namespace
}  // namespace dtrain::parallel
