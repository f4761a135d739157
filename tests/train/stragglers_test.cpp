#include "train/stragglers.hpp"

#include <gtest/gtest.h>

#include <array>

namespace dtrain::train {
namespace {

TEST(StragglersTest, AreThoseFarAboveTheMedianThatCostSomething) {
  EXPECT_EQ(Stragglers::slow(std::array{1.0, 1.1, 1.2, 5.0}), (std::vector<int>{3}));
  EXPECT_EQ(Stragglers::slow(std::array{1.0, 1.1, 1.2, 1.3}), std::vector<int>{});
  EXPECT_EQ(Stragglers::slow(std::array{0.01, 0.01, 0.01, 0.05}),
            std::vector<int>{});  // five times, and nothing
  EXPECT_EQ(Stragglers::slow(std::array{4.0, 1.0, 4.5, 1.0, 1.1}), (std::vector<int>{0, 2}));
}

TEST(StragglersTest, OfTwoRanksTheSlowerOneIsMeasuredByTheOther) {
  EXPECT_EQ(Stragglers::slow(std::array{1.0, 2.0}), (std::vector<int>{1}));
  EXPECT_EQ(Stragglers::slow(std::array{1.0, 1.2}), std::vector<int>{});
  EXPECT_EQ(Stragglers::slow(std::array{3.0}), std::vector<int>{});
}

}  // namespace
}  // namespace dtrain::train
