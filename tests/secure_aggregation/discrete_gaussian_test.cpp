#include "secure_aggregation/discrete_gaussian.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/error.hpp"
#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {
namespace {

TEST(DiscreteGaussianTest, EachIntegerComesAsOftenAsItsProbabilitySays) {
  for (const std::uint64_t squared : {1, 2, 7, 100}) {
    const auto variance = static_cast<double>(squared);
    privacy::Keystream random(Block<32>{static_cast<std::byte>(squared)});
    DiscreteGaussian noise(squared, random);
    constexpr int kDraws = 100000;
    std::map<std::int64_t, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[noise.draw()];
    double all = 0;
    for (int x = -200; x <= 200; ++x) all += std::exp(-x * x / (2 * variance));
    double square = 0;
    int bins = 0;
    for (int x = -40; x <= 40; ++x) {
      const double expected = kDraws * std::exp(-x * x / (2 * variance)) / all;
      if (expected < 10) continue;
      square += (counts[x] - expected) * (counts[x] - expected) / expected;
      ++bins;
    }
    EXPECT_LT(std::abs(square - bins), 5 * std::sqrt(2.0 * bins)) << variance;
    for (const auto& [value, count] : counts)
      EXPECT_LT(std::abs(static_cast<double>(value)), 8 * std::sqrt(variance));
  }
}

TEST(DiscreteGaussianTest, LargeDeviationsAreRight) {
  for (const double deviation : {1000.0, 0x1p20}) {
    privacy::Keystream random(Block<32>{std::byte{9}});
    DiscreteGaussian noise(static_cast<std::uint64_t>(deviation * deviation), random);
    constexpr int kDraws = 20000;
    double mean = 0;
    double squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto scaled = static_cast<double>(noise.draw()) / deviation;
      mean += scaled / kDraws;
      squares += scaled * scaled / kDraws;
    }
    EXPECT_NEAR(mean, 0, 5 / std::sqrt(kDraws));
    EXPECT_NEAR(squares, 1, 5 * std::sqrt(2.0 / kDraws));
  }
}

TEST(DiscreteGaussianTest, VariancesOutOfRangeAreRefused) {
  privacy::Keystream random(Block<32>{});
  for (const std::uint64_t variance : {std::uint64_t{0}, kMostVariance + 1}) {
    EXPECT_THROW(DiscreteGaussian(variance, random), Error) << variance;
  }
}

}  // namespace
}  // namespace dtrain::secure_aggregation
