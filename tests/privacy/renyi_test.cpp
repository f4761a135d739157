#include "privacy/renyi.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

SampledGaussian poisson(double rate, double noise, std::int64_t steps) {
  return {.sampling = Sampling::poisson, .noise_multiplier = noise, .rate = rate, .steps = steps};
}

SampledGaussian once(std::int64_t steps_per_epoch, double noise, std::int64_t steps) {
  return {.sampling = Sampling::once_an_epoch,
          .noise_multiplier = noise,
          .rate = 1 / static_cast<double>(steps_per_epoch),
          .steps = steps};
}

TEST(RenyiTest, OfAllRecordsIsTheGaussianMechanism) {
  for (const double alpha : {1.5, 2.0, 7.3, 40.0})
    EXPECT_NEAR(renyi_divergence(poisson(1, 3, 10), alpha), 10 * alpha / 18, 1e-12);
}

/// By numerical integration of E over N(0, s^2) of (1 - q + q e^((2 x - 1) / (2 s^2)))^alpha.
TEST(RenyiTest, EqualsItsDefiningIntegral) {
  for (const double rate : {0.003, 0.1, 0.7}) {
    for (const double noise : {0.7, 1.0, 4.0}) {
      for (const double alpha : {1.1, 2.0, 3.7, 8.0, 20.5}) {
        double sum = 0;
        constexpr double kStep = 1e-3;  // of standard deviations; an exponentially exact rule
        for (double z = -14; z < 14 + alpha / noise; z += kStep) {
          const double x = z * noise;
          const double ratio = 1 - rate + rate * std::exp((2 * x - 1) / (2 * noise * noise));
          sum += kStep * std::exp(alpha * std::log(ratio) - z * z / 2) / std::sqrt(2 * M_PI);
        }
        const double expected = std::log(sum) / (alpha - 1);
        EXPECT_NEAR(renyi_divergence(poisson(rate, noise, 1), alpha), expected, 1e-7 * expected + 1e-11)
            << rate << " " << noise << " " << alpha;
      }
    }
  }
}

TEST(RenyiTest, EpsilonsAreThoseOfOpacus) {
  struct Case {
    double rate, noise;
    std::int64_t steps;
    double delta, epsilon;  // opacus 1.6.0, opacus.accountants.analysis.rdp with its default orders
  };
  for (const auto& [rate, noise, steps, delta, epsilon] :
       {Case{0.01, 1.0, 1000, 1e-5, 2.101365}, Case{0.01, 1.1, 10000, 1e-5, 5.631992},
        Case{0.001, 0.8, 100000, 1e-6, 3.187804}, Case{1, 5, 10, 1e-5, 2.813653},
        Case{0.05, 2, 500, 1e-5, 2.768585}, Case{0.004266, 1.3, 3516, 1e-5, 0.954407},
        Case{0.2, 0.5, 10, 1e-3, 14.691766}}) {
    EXPECT_NEAR(renyi_epsilon({poisson(rate, noise, steps)}, delta), epsilon, 2e-6) << rate << " " << noise;
  }
}

TEST(RenyiTest, MechanismsAddUp) {
  const double together =
      renyi_divergence(poisson(0.01, 1, 300), 5) + renyi_divergence(poisson(0.1, 2, 40), 5);
  const double apart = renyi_divergence(poisson(0.01, 1, 100), 5) +
                       renyi_divergence(poisson(0.01, 1, 200), 5) + renyi_divergence(poisson(0.1, 2, 40), 5);
  EXPECT_NEAR(together, apart, 1e-12);
  EXPECT_NEAR(renyi_epsilon({poisson(0.01, 1, 300)}, 1e-5),
              renyi_epsilon({poisson(0.01, 1, 100), poisson(0.01, 1, 200)}, 1e-5), 1e-12);
}

TEST(RenyiTest, AStepMadeTwiceCountsTwice) {
  EXPECT_GT(renyi_epsilon({poisson(0.01, 1, 101)}, 1e-5), renyi_epsilon({poisson(0.01, 1, 100)}, 1e-5));
}

TEST(RenyiTest, OnceAnEpochIsTheMeanOfGaussians) {
  // One step in an epoch: all take part.
  EXPECT_NEAR(renyi_divergence(once(1, 2, 3), 6), 3 * 6 / 8.0, 1e-9);
  // The moment of order 2 is 1 + (e^(1 / s^2) - 1) / T; the other direction's bound is below it here.
  for (const std::int64_t steps : {2, 10, 100}) {
    for (const double noise : {0.5, 1.0, 3.0}) {
      const double removed = std::log(1 + std::expm1(1 / (noise * noise)) / static_cast<double>(steps));
      const double added = static_cast<double>(1 + steps) / (2 * static_cast<double>(steps) * noise * noise);
      EXPECT_NEAR(renyi_divergence(once(steps, noise, steps), 2), std::max(removed, added), 1e-9)
          << steps << " " << noise;
    }
  }
}

/// The moment of order 3 over all triples of steps.
TEST(RenyiTest, OnceAnEpochOfOrderThreeIsTheSumOverTriples) {
  constexpr int kSteps = 5;
  constexpr double kNoise = 0.4;
  double sum = 0;
  for (int a = 0; a < kSteps; ++a) {
    for (int b = 0; b < kSteps; ++b) {
      for (int c = 0; c < kSteps; ++c) sum += std::exp(((a == b) + (b == c) + (a == c)) / (kNoise * kNoise));
    }
  }
  const double expected = std::log(sum / (kSteps * kSteps * kSteps)) / 2;
  EXPECT_NEAR(renyi_divergence(once(kSteps, kNoise, kSteps), 3), expected, 1e-9);
}

TEST(RenyiTest, OnceAnEpochIsNotAccountedAsPoisson) {
  EXPECT_GT(renyi_epsilon({once(100, 1, 1000)}, 1e-5), 2 * renyi_epsilon({poisson(0.01, 1, 1000)}, 1e-5));
}

TEST(RenyiTest, APartOfAnEpochCountsAsAWholeOne) {
  EXPECT_EQ(renyi_epsilon({once(100, 1, 1)}, 1e-5), renyi_epsilon({once(100, 1, 100)}, 1e-5));
  EXPECT_GT(renyi_epsilon({once(100, 1, 101)}, 1e-5), renyi_epsilon({once(100, 1, 100)}, 1e-5));
}

TEST(RenyiTest, WithoutNoiseNothingIsPrivateAndWithoutStepsAllIs) {
  EXPECT_TRUE(std::isinf(renyi_epsilon({poisson(0.01, 0, 1)}, 1e-5)));
  EXPECT_EQ(renyi_epsilon({poisson(0.01, 0, 0)}, 1e-5), 0);
  EXPECT_EQ(renyi_epsilon({}, 1e-5), 0);
}

TEST(RenyiTest, WrongValuesAreRefused) {
  for (const double delta : {0.0, 1.0, -1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    try {
      renyi_epsilon({poisson(0.1, 1, 1)}, delta);
      ADD_FAILURE() << delta;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(error.subject(), "--dp-delta");
    }
  }
  EXPECT_THROW(renyi_epsilon({poisson(0, 1, 1)}, 1e-5), Error);
  EXPECT_THROW(renyi_epsilon({poisson(1.1, 1, 1)}, 1e-5), Error);
  EXPECT_THROW(renyi_epsilon({poisson(0.1, -1, 1)}, 1e-5), Error);
  EXPECT_THROW(renyi_epsilon({poisson(0.1, 1, -1)}, 1e-5), Error);
  EXPECT_THROW(parse_sampling("shuffled"), Error);
}

}  // namespace
}  // namespace dtrain::privacy
