#include "kernels/draws.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace dtrain::kernels {
namespace {

RandomKey key(std::uint64_t seed = 1) { return {.seed = seed, .stream = stream_of("draws_test")}; }

TEST(DrawsTest, APermutationHasEachNumberOnceAndFollowsItsKey) {
  for (const std::int64_t n : {0, 1, 2, 1000, 3000}) {
    auto numbers = permutation(n, key());
    EXPECT_EQ(numbers, permutation(n, key()));
    if (n >= 1000) {
      EXPECT_NE(numbers, permutation(n, key(2)));
    }
    std::ranges::sort(numbers);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  }
}

TEST(DrawsTest, NumbersBelowABoundAreEquallyFrequent) {
  Draws draws(key());
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(static_cast<std::size_t>(draws.below(7)));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);  // four standard deviations
}

TEST(DrawsTest, UnitAndNormalHaveTheirMoments) {
  Draws draws(key());
  double sum = 0;
  double normal = 0;
  double square = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double u = draws.unit();
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    const double x = draws.normal();
    normal += x;
    square += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.004);
  EXPECT_NEAR(normal / kCount, 0, 0.013);
  EXPECT_NEAR(square / kCount, 1, 0.02);
}

TEST(DrawsTest, GammaHasItsMeanAndVarianceAlsoForSmallShapes) {
  for (const double shape : {0.05, 0.5, 1.0, 3.0, 40.0}) {
    Draws draws(key());
    double sum = 0;
    double squares = 0;
    constexpr int kCount = 200000;
    for (int i = 0; i < kCount; ++i) {
      const double x = std::exp(draws.log_gamma(shape));
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kCount;
    EXPECT_NEAR(mean, shape, 5 * std::sqrt(shape / kCount)) << shape;
    EXPECT_NEAR(squares / kCount - mean * mean, shape, shape * 0.12 + 0.005) << shape;
  }
}

TEST(DrawsTest, TheLogarithmOfATinyGammaNumberIsFinite) {
  Draws draws(key());
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(std::isfinite(draws.log_gamma(1e-3)));
}

}  // namespace
}  // namespace dtrain::kernels
