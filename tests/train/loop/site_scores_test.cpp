#include "train/loop/site_scores.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dtrain::train {
namespace {

/// Classes, predictions and scores of as many samples.
std::vector<ScoredSample> scored(const std::vector<int>& targets, const std::vector<double>& scores) {
  std::vector<ScoredSample> samples;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    samples.push_back({.loss = 0.5 * static_cast<double>(i),
                       .target = static_cast<double>(targets[i]),
                       .predicted = scores[i] > 0 ? 1.0 : 0.0,
                       .score = scores[i]});
  }
  return samples;
}

TEST(SiteScoresTest, TheAreaIsTheShareOfPairsInOrder) {
  EXPECT_DOUBLE_EQ(area_under_curve(scored({0, 0, 1, 1}, {-2, -1, 1, 2})), 1);
  EXPECT_DOUBLE_EQ(area_under_curve(scored({1, 1, 0, 0}, {-2, -1, 1, 2})), 0);
  EXPECT_DOUBLE_EQ(area_under_curve(scored({0, 1, 0, 1}, {1, 1, 1, 1})), 0.5);
  // Of six pairs: 0.35 over 0.1 and 0.4 x; 0.8 over both; 0.1 = 0.1 a half.
  EXPECT_DOUBLE_EQ(area_under_curve(scored({0, 0, 1, 1, 1}, {0.1, 0.4, 0.35, 0.8, 0.1})), 3.5 / 6);
}

TEST(SiteScoresTest, TheAreaIsUnknownWhereAllAreOfOneClass) {
  EXPECT_TRUE(std::isnan(area_under_curve(scored({1, 1}, {0, 1}))));
  EXPECT_TRUE(std::isnan(area_under_curve(scored({0, 0}, {0, 1}))));
}

TEST(SiteScoresTest, LossAccuracyAndF1) {
  // Found 1 of 2; one of the others is taken for it.
  const auto score = score_of(scored({1, 1, 0, 0}, {1, -1, 2, -2}), 2);
  EXPECT_EQ(score.samples, 4);
  EXPECT_DOUBLE_EQ(score.loss, 0.75);
  EXPECT_DOUBLE_EQ(score.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(score.f1, 0.5);
  const auto three = score_of(scored({1, 1, 0, 0}, {1, -1, 2, -2}), 3);
  EXPECT_DOUBLE_EQ(three.accuracy, 0.5);
  EXPECT_TRUE(std::isnan(three.f1) && std::isnan(three.auc));
}

TEST(SiteScoresTest, ClassesCountAsMuchAsTheirWeights) {
  // Class 1 is found in one of two, class 0 in one of two; class 1 counts three times as much.
  const auto samples = scored({1, 1, 0, 0}, {1, -1, 2, -2});
  const std::vector<double> weights = {1, 3};
  const auto score = score_of(samples, 2, weights);
  EXPECT_EQ(score.samples, 4);
  EXPECT_DOUBLE_EQ(score.loss, (3 * 0 + 3 * 0.5 + 1 * 1 + 1 * 1.5) / 8);
  EXPECT_DOUBLE_EQ(score.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(score.f1, 2 * 3.0 / (2 * 3 + 4));
  EXPECT_DOUBLE_EQ(score.auc, score_of(samples, 2).auc);
  const std::vector<double> one = {0, 2};
  const auto alone = score_of(samples, 2, one);
  EXPECT_EQ(alone.samples, 2);
  EXPECT_DOUBLE_EQ(alone.loss, 0.25);
  EXPECT_TRUE(std::isnan(alone.auc));
  const std::vector<double> none = {0, 0};
  EXPECT_TRUE(std::isnan(score_of(samples, 2, none).accuracy));
}

TEST(SiteScoresTest, ScoresThatAreNoNumbersHaveNoCurve) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(area_under_curve(scored({0, 1, 1}, {kNone, 1, 2}))));
  EXPECT_TRUE(std::isnan(area_under_curve(scored({0, 1}, {kNone, kNone}))));
  EXPECT_EQ(area_under_curve(scored({0, 1}, {-std::numeric_limits<double>::infinity(), 1})), 1);
}

TEST(SiteScoresTest, ASiteWithoutSamplesHasNoScores) {
  const auto score = score_of({}, 2);
  EXPECT_EQ(score.samples, 0);
  EXPECT_TRUE(std::isnan(score.loss) && std::isnan(score.accuracy) && std::isnan(score.f1) &&
              std::isnan(score.auc));
}

}  // namespace
}  // namespace dtrain::train
