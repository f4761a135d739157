#include "privacy/accountant.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

#include "core/error.hpp"
#include "privacy/log_domain.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::privacy {
namespace {

SampledGaussian by_chance(double rate, double noise, std::int64_t steps) {
  return {.sampling = Sampling::poisson, .noise_multiplier = noise, .rate = rate, .steps = steps};
}

/// The delta of Gaussian mechanisms of which the sensitivity is `mu` standard deviations in all. Source:
/// Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, theorem 8.
double gaussian_delta(double mu, double epsilon) {
  return normal_above(epsilon / mu - mu / 2) - std::exp(epsilon) * normal_above(epsilon / mu + mu / 2);
}

TEST(AccountantTest, BoundsHoldTheExactEpsilonOfGaussianSteps) {
  for (const auto& [noise, steps] : {std::pair{5.0, 10}, {1.0, 1}, {0.6, 3}, {30.0, 2000}}) {
    const double mu = std::sqrt(steps) / noise;
    const Mechanisms all = {by_chance(1, noise, steps)};
    const double upper = loss_epsilon(all, 1e-5, Bound::upper);
    const double lower = loss_epsilon(all, 1e-5, Bound::lower);
    EXPECT_LE(gaussian_delta(mu, upper), 1e-5);
    EXPECT_GE(gaussian_delta(mu, lower), 1e-5);
    EXPECT_LE(upper - lower, 1e-3) << noise;
  }
}

TEST(AccountantTest, BoundsHoldOneStepExactly) {
  // Of one step delta is known: P(loss > epsilon) - e^epsilon Q(loss > epsilon).
  for (const double rate : {0.01, 0.3}) {
    for (const double noise : {0.5, 1.5}) {
      for (const double epsilon : {0.05, 0.2}) {
        const auto step = by_chance(rate, noise, 1);
        const double at = noise * noise * std::log((std::exp(epsilon) - 1 + rate) / rate) + 0.5;
        const double exact = (1 - rate) * normal_above(at / noise) + rate * normal_above((at - 1) / noise) -
                             std::exp(epsilon) * normal_above(at / noise);
        for (const auto bound : {Bound::upper, Bound::lower}) {
          const auto all = compose({{discretise(step, Direction::remove, bound, 1e-3), 1}}, 1e-14);
          const double delta = all.delta(epsilon, bound);
          EXPECT_NEAR(delta, exact, 2e-6 + 1e-3 * exact) << rate << " " << noise << " " << epsilon;
          EXPECT_TRUE(bound == Bound::upper ? delta >= exact - 1e-15 : delta <= exact + 1e-15)
              << rate << " " << noise << " " << epsilon;
        }
      }
    }
  }
}

TEST(AccountantTest, EpsilonsAreThoseOfDpAccounting) {
  struct Case {
    double rate, noise;
    std::int64_t steps;
    double delta, epsilon;  // dp-accounting 0.6.0, pld.from_gaussian_mechanism with its default grid of 1e-4
  };
  for (const auto& [rate, noise, steps, delta, epsilon] :
       {Case{0.01, 1.0, 1000, 1e-5, 1.828244}, Case{0.01, 1.1, 10000, 1e-5, 5.192620},
        Case{1, 5, 10, 1e-5, 2.594383}, Case{0.05, 2, 500, 1e-5, 2.532034},
        Case{0.004266, 1.3, 3516, 1e-5, 0.864441}, Case{0.2, 0.5, 10, 1e-3, 12.049220}}) {
    const Mechanisms all = {by_chance(rate, noise, steps)};
    const double upper = loss_epsilon(all, delta, Bound::upper);
    const double lower = loss_epsilon(all, delta, Bound::lower);
    EXPECT_NEAR(upper, epsilon, 2e-4) << rate << " " << noise;
    EXPECT_NEAR(lower, epsilon, 4e-4) << rate << " " << noise;
    EXPECT_LE(lower, upper);
    EXPECT_LE(upper, renyi_epsilon(all, delta)) << "a Renyi divergence bounds less tightly";
  }
}

TEST(AccountantTest, PartsOfOneMechanismComposeToTheWhole) {
  const double whole = loss_epsilon({by_chance(0.02, 1, 300)}, 1e-5, Bound::upper);
  const double parts = loss_epsilon({by_chance(0.02, 1, 100), by_chance(0.02, 1, 200)}, 1e-5, Bound::upper);
  EXPECT_NEAR(whole, parts, 1e-6);
  const Mechanisms different = {by_chance(0.02, 1, 200), by_chance(0.05, 2, 100)};
  EXPECT_LE(loss_epsilon(different, 1e-5, Bound::lower), loss_epsilon(different, 1e-5, Bound::upper));
  EXPECT_GT(loss_epsilon(different, 1e-5, Bound::lower), loss_epsilon({different[0]}, 1e-5, Bound::upper));
}

TEST(AccountantTest, NoiseForATargetKeepsToIt) {
  for (const auto accounting : {Accounting::renyi, Accounting::loss}) {
    const double noise = noise_for(3, 1e-5, by_chance(0.01, 0, 1000), accounting);
    EXPECT_LE(epsilon_of({by_chance(0.01, noise, 1000)}, 1e-5, accounting), 3);
    EXPECT_GT(epsilon_of({by_chance(0.01, 0.999 * noise, 1000)}, 1e-5, accounting), 3);
  }
  // Opacus's get_noise_multiplier says 0.86 (to 0.01) for the first.
  EXPECT_NEAR(noise_for(3, 1e-5, by_chance(0.01, 0, 1000), Accounting::renyi), 0.8646, 1e-3);
}

TEST(AccountantTest, StepsWithinABudgetAreTheMostThatKeepToIt) {
  const auto step = by_chance(0.01, 1, 0);
  const auto steps = steps_within(2, 1e-5, {}, step, Accounting::renyi, 10000);
  EXPECT_LE(renyi_epsilon({by_chance(0.01, 1, steps)}, 1e-5), 2);
  EXPECT_GT(renyi_epsilon({by_chance(0.01, 1, steps + 1)}, 1e-5), 2);
  EXPECT_EQ(steps_within(2, 1e-5, {by_chance(0.01, 1, 300)}, step, Accounting::renyi, 10000), steps - 300);
  EXPECT_EQ(steps_within(2, 1e-5, {by_chance(0.01, 1, steps)}, step, Accounting::renyi, 10000), 0);
  EXPECT_EQ(steps_within(2, 1e-5, {}, step, Accounting::renyi, 10), 10);
}

TEST(AccountantTest, WhatCannotBeReachedIsRefused) {
  for (const double noise : {0.01, 0.02, 0.034, 0.0359}) {
    EXPECT_EQ(loss_epsilon({by_chance(0.01, noise, 10)}, 1e-5, Bound::upper),
              std::numeric_limits<double>::infinity());
  }
  const double least = loss_epsilon({by_chance(1, 0.037, 1)}, 1e-5, Bound::upper);
  EXPECT_TRUE(std::isfinite(least) && least > 300) << least;
  for (const double epsilon : {0.0, -1.0, 1e-6, std::numeric_limits<double>::infinity()}) {
    try {
      noise_for(epsilon, 1e-5, by_chance(0.5, 0, 100000), Accounting::renyi);
      ADD_FAILURE() << epsilon;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.subject(), "--target-epsilon");
    }
  }
  EXPECT_THROW(noise_for(1, 0, by_chance(0.5, 0, 10), Accounting::renyi), Error);
  EXPECT_THROW(parse_accounting("moments"), Error);
}

// Of records that are drawn by chance nearly all lose one small value, and a few some hundred.
TEST(AccountantTest, LittleNoiseIsAccountedForInTimeAndFromAbove) {
  for (const auto& [rate, noise, steps] :
       {std::tuple{0.5, 0.05, 1}, {0.1, 0.085, 1}, {0.1, 0.036, 1}, {0.01, 0.06, 50}, {1e-4, 0.1, 1000}}) {
    const Mechanisms all = {by_chance(rate, noise, steps)};
    const double upper = loss_epsilon(all, 1e-5, Bound::upper);
    EXPECT_LE(loss_epsilon(all, 1e-5, Bound::lower), upper) << rate << " " << noise;
    EXPECT_LE(upper, 1.001 * renyi_epsilon(all, 1e-5)) << rate << " " << noise;
    if (steps > 1) continue;
    // Of one step delta is known: what the bound from above says is enough.
    const double at =
        noise * noise * (upper + std::log1p(-(1 - rate) * std::exp(-upper)) - std::log(rate)) + 0.5;
    EXPECT_LE(rate * normal_above((at - 1) / noise) -
                  std::exp(upper + std::log(0.5) + log_erfc(at / noise / std::numbers::sqrt2)),
              1e-5);
  }
  const double noise = noise_for(100, 1e-5, by_chance(0.1, 0, 1), Accounting::loss);
  EXPECT_LE(loss_epsilon({by_chance(0.1, noise, 1)}, 1e-5, Bound::upper), 100);
  EXPECT_GT(loss_epsilon({by_chance(0.1, 0.99 * noise, 1)}, 1e-5, Bound::upper), 100);
}

TEST(AccountantTest, OfOnceAnEpochTheBetterBoundCounts) {
  const Mechanisms once = {
      {.sampling = Sampling::once_an_epoch, .noise_multiplier = 1, .rate = 0.01, .steps = 1000}};
  const double epsilon = epsilon_of(once, 1e-5, Accounting::loss);
  EXPECT_EQ(epsilon, renyi_epsilon(once, 1e-5));
  EXPECT_LT(epsilon, loss_epsilon(once, 1e-5, Bound::upper));
  EXPECT_NEAR(loss_epsilon(once, 1e-5, Bound::upper), loss_epsilon({by_chance(1, 1, 10)}, 1e-5, Bound::upper),
              1e-9)
      << "as a step of all records once an epoch";
}

}  // namespace
}  // namespace dtrain::privacy
