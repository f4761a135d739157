#include "train/evaluation.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace dtrain::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(EvaluationTest, ASmallerLossIsBetter) {
  EXPECT_TRUE(improves(0.5, 1.0));
  EXPECT_FALSE(improves(1.0, 1.0));
  EXPECT_FALSE(improves(2.0, 1.0));
  EXPECT_TRUE(improves(2.0, kInfinity));
}

TEST(EvaluationTest, AnyLossIsBetterThanNoneAndNoneIsBetterThanNothing) {
  EXPECT_TRUE(improves(1e9, kNan));
  EXPECT_FALSE(improves(kNan, 1.0));
  EXPECT_FALSE(improves(kNan, kNan));
  EXPECT_FALSE(improves(kNan, kInfinity));
}

TEST(EvaluationTest, MeansComeFromSumsAndNoSamplesGiveNoMeans) {
  const auto scores =
      scores_of({.loss = 6, .weight = 4, .correct = 3, .counted = 4}, 4, Scoring::loss_and_accuracy);
  EXPECT_EQ(scores.loss, 1.5);
  EXPECT_EQ(scores.accuracy, 0.75);
  EXPECT_TRUE(std::isnan(scores_of({.loss = 6, .weight = 4}, 4, Scoring::loss_only).accuracy));
  EXPECT_TRUE(std::isnan(scores_of({}, 0, Scoring::loss_and_accuracy).loss));
}

}  // namespace
}  // namespace dtrain::train
