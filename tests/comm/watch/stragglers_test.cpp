#include "comm/watch/stragglers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace dtrain::comm {
namespace {

using Own = Stragglers::Own;

/// Indices of the slow ones where all have as many samples.
template <std::size_t N>
std::vector<int> slow(const std::array<double, N>& seconds) {
  std::vector<Own> all;
  for (const double own_s : seconds) all.push_back({own_s, 100});
  std::vector<int> indices;
  for (const auto& found : Stragglers::slow(all)) indices.push_back(found.index);
  return indices;
}

TEST(StragglersTest, AreThoseFarAboveTheMedianThatCostSomething) {
  EXPECT_EQ(slow(std::array{1.0, 1.1, 1.2, 5.0}), (std::vector<int>{3}));
  EXPECT_EQ(slow(std::array{1.0, 1.1, 1.2, 1.3}), std::vector<int>{});
  EXPECT_EQ(slow(std::array{0.01, 0.01, 0.01, 0.05}), std::vector<int>{});  // five times, and nothing
  EXPECT_EQ(slow(std::array{4.0, 1.0, 4.5, 1.0, 1.1}), (std::vector<int>{0, 2}));
}

TEST(StragglersTest, OfTwoRanksTheSlowerOneIsMeasuredByTheOther) {
  EXPECT_EQ(slow(std::array{1.0, 2.0}), (std::vector<int>{1}));
  EXPECT_EQ(slow(std::array{1.0, 1.2}), std::vector<int>{});
  EXPECT_EQ(slow(std::array{3.0}), std::vector<int>{});
}

TEST(StragglersTest, ARankThatHasMoreSamplesIsNotSlow) {
  // Three micro-batches on two ranks.
  EXPECT_EQ(Stragglers::slow(std::array{Own{2.0, 200}, Own{1.0, 100}}), std::vector<Stragglers::Slow>{});
  // It takes twice as long for each, and the other still waits for nothing.
  EXPECT_EQ(Stragglers::slow(std::array{Own{2.0, 200}, Own{1.9, 100}}), std::vector<Stragglers::Slow>{});
  EXPECT_EQ(Stragglers::slow(std::array{Own{4.0, 200}, Own{1.0, 100}}),
            (std::vector<Stragglers::Slow>{{0, 2.0}}));
  EXPECT_EQ(Stragglers::slow(std::array{Own{2.0, 200}, Own{3.0, 100}}),
            (std::vector<Stragglers::Slow>{{1, 2.0}}));
}

TEST(StragglersTest, RanksWithoutSamplesAreComparedByTheirTime) {
  EXPECT_EQ(Stragglers::slow(std::array{Own{1.0, 100}, Own{1.0, 100}, Own{0.1, 0}, Own{3.0, 0}}),
            (std::vector<Stragglers::Slow>{{3, 1.0}}));
}

}  // namespace
}  // namespace dtrain::comm
