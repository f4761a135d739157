#include "privacy/draws.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dtrain::privacy {
namespace {

TEST(DrawsTest, PoissonTakesEachRecordWithItsRate) {
  constexpr std::int64_t kRecords = 997;
  constexpr int kSteps = 2000;
  std::vector<double> taken(kRecords, 0.0);
  double sizes = 0;
  double squares = 0;
  for (int step = 1; step <= kSteps; ++step) {
    const auto drawn = poisson_draw(kRecords, 0.1, 5, step);
    EXPECT_TRUE(std::ranges::is_sorted(drawn));
    for (const auto record : drawn) taken.at(static_cast<std::size_t>(record)) += 1;
    const auto size = static_cast<double>(drawn.size());
    sizes += size / kSteps;
    squares += size * size / kSteps;
  }
  EXPECT_NEAR(sizes, 99.7, 5 * std::sqrt(997 * 0.09 / kSteps));
  EXPECT_NEAR(squares - sizes * sizes, 997 * 0.09, 15)
      << "the size of a step varies: it is no shuffled batch";
  for (const double times : taken) EXPECT_NEAR(times, 200, 6 * std::sqrt(kSteps * 0.09));
}

TEST(DrawsTest, PoissonMayTakeAllOrNone) {
  EXPECT_EQ(poisson_draw(7, 1, 1, 1).size(), 7U);
  EXPECT_TRUE(poisson_draw(7, 1e-12, 1, 1).empty());
  EXPECT_TRUE(poisson_draw(0, 0.5, 1, 1).empty());
}

TEST(DrawsTest, OnceAnEpochTakesEachRecordOnce) {
  const auto drawn = once_an_epoch_draws(1003, 13, 9, 2);
  std::vector<std::int64_t> all;
  for (const auto& step : drawn) {
    EXPECT_NEAR(static_cast<double>(step.size()), 1003 / 13.0, 45);
    all.insert(all.end(), step.begin(), step.end());
  }
  std::ranges::sort(all);
  std::vector<std::int64_t> each(1003);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(all, each);
  EXPECT_NE(drawn, once_an_epoch_draws(1003, 13, 9, 3)) << "another epoch";
}

TEST(DrawsTest, ArePureFunctions) {
  EXPECT_EQ(poisson_draw(500, 0.2, 3, 8), poisson_draw(500, 0.2, 3, 8));
  EXPECT_NE(poisson_draw(500, 0.2, 3, 8), poisson_draw(500, 0.2, 4, 8));
  EXPECT_EQ(once_an_epoch_draws(500, 7, 3, 8), once_an_epoch_draws(500, 7, 3, 8));
}

TEST(DrawsTest, EachHalfOfASeedCounts) {
  const std::uint64_t high = std::uint64_t{1} << 32;
  EXPECT_NE(poisson_draw(500, 0.2, 3, 8), poisson_draw(500, 0.2, 3 + high, 8));
  EXPECT_NE(poisson_draw(500, 0.2, 3 + high, 8), poisson_draw(500, 0.2, 4 + high, 8));
  EXPECT_NE(once_an_epoch_draws(500, 7, 3, 8), once_an_epoch_draws(500, 7, 3 + high, 8));
  EXPECT_NE(once_an_epoch_draws(500, 7, 3 + high, 8), once_an_epoch_draws(500, 7, 4 + high, 8));
}

}  // namespace
}  // namespace dtrain::privacy
