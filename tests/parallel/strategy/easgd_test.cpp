#include "parallel/strategy/easgd.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "parallel/strategy/job_of_rounds.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kClosedForm = 1e-6;

template <std::size_t N>
using Matrix = std::array<std::array<double, N>, N>;

template <std::size_t N>
Matrix<N> product(const Matrix<N>& a, const Matrix<N>& b) {
  Matrix<N> c{};
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < N; ++j)
      for (std::size_t k = 0; k < N; ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

template <std::size_t N>
Matrix<N> power(const Matrix<N>& a, int exponent) {
  Matrix<N> result{};
  for (std::size_t i = 0; i < N; ++i) result[i][i] = 1;
  for (int i = 0; i < exponent; ++i) result = product(a, result);
  return result;
}

// Copy i is pulled to b_i = i + 1. With t = (1 - rate curvature)^period a round takes x_i to b_i + t (x_i -
// b_i) and the exchange with elasticity a to (1 - a) that + a c, while c goes to (1 - p a) c + a times their
// sum. The differences from the mean of the copies then follow a geometric series, and the mean u and the
// centre v, both less the mean of all b, a matrix.
TEST(EasgdTest, CopiesAndCentreFollowTheClosedFormOnAQuadratic) {
  constexpr int kPeriod = 2;
  constexpr int kRounds = 5;
  JobOfRounds job;
  const double copies = job.copies();
  const double a = 0.9 / copies;
  Easgd strategy(job.parts({.sync_period = std::to_string(kPeriod)}, {.name = "sgd"}));
  const auto start = job.weights();
  job.engine.target = job.rank() + 1.0;
  job.engine.curvature = 1.5;
  std::int64_t number = 0;
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_FALSE(job.step(strategy, ++number).agreed);
    EXPECT_TRUE(job.step(strategy, ++number).agreed);
  }
  const double t = std::pow(1 - job.rate * job.engine.curvature, kPeriod);
  const double q = (1 - a) * t;
  const double mean_target = (copies + 1) / 2;
  const double apart =
      (1 - a) * (1 - t) * (job.engine.target - mean_target) * (1 - std::pow(q, kRounds)) / (1 - q);
  const auto moved = power<2>({{{q, a}, {copies * a * t, 1 - copies * a}}}, kRounds);
  const auto from = start - mean_target;
  const auto mean = mean_target + from * (moved[0][0] + moved[0][1]);
  const auto centre = mean_target + from * (moved[1][0] + moved[1][1]);
  EXPECT_LT(distance(job.weights(), mean + apart), kClosedForm);
  strategy.synchronise();
  EXPECT_LT(distance(job.weights(), centre), kClosedForm);
  EXPECT_NO_THROW(strategy.compare_copies(number));
}

// With momentum m a step takes (x, buffer) less the target to another linear image of both; all copies have
// the same target here, so that three numbers describe all of them.
TEST(EasgdTest, WithMomentumTheyFollowItToo) {
  constexpr int kPeriod = 3;
  constexpr int kRounds = 4;
  JobOfRounds job;
  const double copies = job.copies();
  const double a = 0.2 / copies;
  Easgd strategy(job.parts({.sync_period = std::to_string(kPeriod), .elasticity = a},
                           {.name = "sgd", .momentum = 0.5, .nesterov = true}));
  const auto start = job.weights();
  job.engine.target = 2;
  std::int64_t number = 0;
  for (int step = 0; step < kPeriod * kRounds; ++step) job.step(strategy, ++number);
  const double h = job.engine.curvature;
  const double m = 0.5;
  // buffer' = m buffer + h x; x' = x - rate (h x + m buffer')
  const Matrix<3> step = {{{1 - job.rate * (h + m * h), -job.rate * m * m, 0}, {h, m, 0}, {0, 0, 1}}};
  const Matrix<3> exchange = {{{1 - a, 0, a}, {0, 1, 0}, {copies * a, 0, 1 - copies * a}}};
  const auto all = power(product(exchange, power(step, kPeriod)), kRounds);
  const auto from = start - job.engine.target;
  EXPECT_LT(distance(job.weights(), job.engine.target + from * (all[0][0] + all[0][2])), kClosedForm);
  strategy.synchronise();
  EXPECT_LT(distance(job.weights(), job.engine.target + from * (all[2][0] + all[2][2])), kClosedForm);
}

TEST(EasgdTest, CopiesAndCentreThatStartUnequalTakeTheFirstOnes) {
  JobOfRounds job(unequal_model());
  Easgd strategy(job.parts({.sync_period = "3"}, {.name = "sgd"}));
  const auto first = weights_of_rank_0();
  EXPECT_EQ(distance(job.weights(), first), 0);
  strategy.synchronise();
  EXPECT_EQ(distance(job.weights(), first), 0) << "the centre";
}

TEST(EasgdTest, AfterTheCentreWasShownACopyGoesOnFromItsOwn) {
  JobOfRounds shown;
  JobOfRounds usual;
  Easgd looked_at(shown.parts({.sync_period = "2"}, {.name = "sgd"}));
  Easgd left_alone(usual.parts({.sync_period = "2"}, {.name = "sgd"}));
  for (auto* job : {&shown, &usual}) job->engine.target = job->rank() + 1.0;
  for (std::int64_t number = 1; number <= 6; ++number) {
    if (shown.step(looked_at, number).agreed) looked_at.synchronise();
    usual.step(left_alone, number);
  }
  EXPECT_GT(distance(shown.weights(), usual.weights()), 1e-3) << "the centre is a copy";
  left_alone.synchronise();
  EXPECT_EQ(distance(shown.weights(), usual.weights()), 0);
}

TEST(EasgdTest, EachCopySavesItsOwn) {
  JobOfRounds job;
  Easgd strategy(job.parts({.sync_period = "1"}, {.name = "sgd", .momentum = 0.9}));
  job.engine.target = job.rank() + 1.0;
  job.step(strategy, 1);
  const auto own = job.weights();
  strategy.synchronise();
  int copies = 0;
  for (const auto& tensor : strategy.state().tensors()) {
    if (!tensor.is_of_optimizer()) continue;
    EXPECT_TRUE(tensor.owner.copy) << tensor.group;
    if (tensor.group != "optimizer/copy") continue;
    ++copies;
    for (std::int64_t begin = 0; const auto* parameter : job.model().parameters()) {
      if (parameter->name == tensor.name) {
        EXPECT_EQ(distance(tensor.value.flatten(), own.narrow(0, begin, parameter->value.numel())), 0);
      }
      begin += parameter->value.numel();
    }
  }
  EXPECT_EQ(copies, static_cast<int>(job.model().parameters().size()));
}

TEST(EasgdTest, TooManyCopiesForAnElasticityAreRefused) {
  Setting setting{.mesh = {.data = 4}, .options = {.elasticity = 0.3}};
  EXPECT_NE(Easgd::can(setting).runs.why_not.find("4 copies"), std::string::npos);
  setting.options.elasticity = 0.25;
  EXPECT_TRUE(Easgd::can(setting).runs);
  setting.options.elasticity = 0;
  setting.mesh.data = 64;
  EXPECT_TRUE(Easgd::can(setting).runs);
}

}  // namespace
}  // namespace dtrain::parallel
