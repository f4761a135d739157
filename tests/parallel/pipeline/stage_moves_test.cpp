#include "parallel/pipeline/stage_moves.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace dtrain::parallel {
namespace {

const std::vector<double> kAlike(10, 1.0);

double cost_of(const Range& range, const std::vector<double>& costs) {
  return std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0);
}

TEST(StageMovesTest, ARankThatHasBecomeSlowHasFewerLayers) {
  const auto now = cut_stages(kAlike, 2, 1, "m");
  const auto move = move_layers(now, kAlike, std::vector<double>{0.005, 0.020}, "m");
  ASSERT_TRUE(move);
  EXPECT_EQ(move->cuts.layers[0].size(), 8);
  EXPECT_EQ(move->cuts.layers[1].size(), 2);
  EXPECT_DOUBLE_EQ(move->now_s, 0.020);
  EXPECT_DOUBLE_EQ(move->then_s, 0.008);
  EXPECT_DOUBLE_EQ(move->costs.slowness[1], 4 * move->costs.slowness[0]);
}

TEST(StageMovesTest, AMoveIsNotUndoneWhileTheSpeedsLast) {
  const auto now = cut_stages(kAlike, 2, 1, "m", {1, 4});
  EXPECT_FALSE(move_layers(now, kAlike, std::vector<double>{0.008, 0.008}, "m"));
  const auto back = move_layers(now, kAlike, std::vector<double>{0.008, 0.002}, "m");
  ASSERT_TRUE(back) << "the rank is fast again";
  EXPECT_EQ(back->cuts.layers[0].size(), 5);
}

TEST(StageMovesTest, WhatSavesLittleOrIsNotKnownMovesNothing) {
  const auto now = cut_stages(kAlike, 2, 1, "m");
  EXPECT_FALSE(move_layers(now, kAlike, std::vector<double>{0.0050, 0.0054}, "m"));
  EXPECT_FALSE(move_layers(now, kAlike, std::vector<double>{0.005, 0}, "m"));
  EXPECT_FALSE(
      move_layers(now, kAlike, std::vector<double>{0.005, std::numeric_limits<double>::quiet_NaN()}, "m"));
  EXPECT_FALSE(move_layers(now, std::vector<double>(10, 0.0), std::vector<double>{0.005, 0.020}, "m"));
}

TEST(StageMovesTest, SlowRanksAreCutAsWellAsCanBe) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(0.1, 5);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> costs(9);
    std::vector<double> slowness(3);
    std::ranges::generate(costs, [&] { return draw(random); });
    std::ranges::generate(slowness, [&] { return draw(random); });
    const auto greatest = [&](const std::vector<Range>& layers) {
      double most = 0;
      for (std::size_t s = 0; s < 3; ++s) most = std::max(most, slowness[s] * cost_of(layers[s], costs));
      return most;
    };
    double best = std::numeric_limits<double>::infinity();
    for (std::int64_t a = 1; a < 8; ++a) {
      for (std::int64_t b = a + 1; b < 9; ++b) best = std::min(best, greatest({{0, a}, {a, b}, {b, 9}}));
    }
    EXPECT_DOUBLE_EQ(greatest(cut_stages(costs, 3, 1, "m", slowness).layers), best);
  }
}

TEST(StageMovesTest, StagesOfARankCountTogether) {
  const auto now = cut_stages(kAlike, 2, 2, "m");
  const auto move = move_layers(now, kAlike, std::vector<double>{0.005, 0.020}, "m");
  ASSERT_TRUE(move);
  EXPECT_EQ(move->cuts.stages(), 4);
  EXPECT_LT(move->then_s, move->now_s);
  EXPECT_GT(move->cuts.layers_of(0).size(), move->cuts.layers_of(1).size());
}

}  // namespace
}  // namespace dtrain::parallel
