#include "secure_aggregation/noise_account.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace dtrain::secure_aggregation {
namespace {

Settings with_noise(double deviation, int survivors = 7) {
  Settings settings{.length = 100, .minimum_survivors = survivors, .noise_deviation = deviation};
  settings.identities.resize(10);
  settings.format.weight_bits = 0;
  return settings;
}

TEST(NoiseAccountTest, IsThatOfAGaussianWhereIntegersAreSmallBesideTheDeviation) {
  const auto settings = with_noise(1000 * std::sqrt(7.0) * (1 - 1e-12));  // 1000 each
  EXPECT_NEAR(concentration_of_sum(settings, 500), 500.0 * 500 / (2 * 7 * 1e6), 1e-12);
  // Twice as far apart: four times as much.
  EXPECT_NEAR(concentration_of_sum(settings, 1000) / concentration_of_sum(settings, 500), 4, 1e-9);
}

TEST(NoiseAccountTest, CountsTheNoiseOfTheFewestClients) {
  const auto settings = with_noise(1001);
  const auto variance = static_cast<double>(settings.noise_variance_of_a_client());
  EXPECT_GE(7 * variance, 1001.0 * 1001);
  EXPECT_NEAR(concentration_of_sum(settings, 10), 100 / (2 * 7 * variance), 1e-12);
}

TEST(NoiseAccountTest, AddsHowFarASumOfFewIntegersIsFromADiscreteGaussian) {
  // Two clients with a variance of 1: the one term of the sum is 10 exp(-pi^2).
  const auto settings = with_noise(std::sqrt(2.0) * (1 - 1e-12), 2);
  ASSERT_EQ(settings.noise_variance_of_a_client(), 1U);
  const double apart = 10 * std::exp(-std::numbers::pi * std::numbers::pi);
  const double epsilon = std::min(std::sqrt(0.5 + apart * 50), std::sqrt(0.5) + apart * 10);
  EXPECT_NEAR(concentration_of_sum(settings, 1), epsilon * epsilon / 2, 1e-12);
  EXPECT_GT(concentration_of_sum(settings, 1), 0.25);
}

TEST(NoiseAccountTest, IsInfiniteWithoutNoise) {
  EXPECT_TRUE(std::isinf(concentration_of_sum(with_noise(0), 1)));
}

}  // namespace
}  // namespace dtrain::secure_aggregation
