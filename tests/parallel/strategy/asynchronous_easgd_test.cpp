#include "parallel/strategy/asynchronous_easgd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "parallel/strategy/job_of_servers.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kClosedForm = 1e-6;

using Matrix = std::array<std::array<double, 3>, 3>;
constexpr Matrix kOne = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

// One copy is alone with the centre, so that (x, momentum's buffer, centre), less the target, go through
// known linear images: S for a step, E for an exchange after every third one, and once more where the ranks
// meet.
TEST(AsynchronousEasgdTest, OneCopyWithMomentumFollowsTheClosedForm) {
  constexpr int kPeriod = 3;
  JobOfServers job;
  const double a = 0.2;
  AsynchronousEasgd strategy(
      job.parts({.sync_period = std::to_string(kPeriod), .servers = job.copies() - 1, .elasticity = a},
                {.name = "sgd", .momentum = 0.5, .nesterov = true}));
  const auto start = job.weights();
  job.engine.target = 2;
  const double h = job.engine.curvature;
  const double m = 0.5;
  const double rate = job.rate / job.copies();  // of a micro-batch: its share of a step
  // buffer' = m buffer + h x; x' = x - rate (h x + m buffer')
  const Matrix step = {{{1 - rate * (h + m * h), -rate * m * m, 0}, {h, m, 0}, {0, 0, 1}}};
  const Matrix exchange = {{{1 - a, 0, a}, {0, 1, 0}, {a, 0, 1 - a}}};
  Matrix all = kOne;
  for (const WorkRange& steps : {WorkRange{.first = 1, .last = 5}, WorkRange{.first = 6, .last = 9}}) {
    EXPECT_TRUE(job.train(strategy, steps).agreed);
    const auto updates = (steps.last - steps.first + 1) * job.copies();
    for (std::int64_t update = 1; update <= updates; ++update) {
      all = product(step, all);
      if (update % kPeriod == 0 || update == updates) all = product(exchange, all);
    }
    const auto from = start - job.engine.target;
    EXPECT_LT(distance(job.weights(), job.engine.target + from * (all[2][0] + all[2][2])), kClosedForm)
        << "the centre, on all ranks, after step " << steps.last;
  }
  EXPECT_NO_THROW(strategy.compare_copies(9));
}

class AsynchronousEasgdServersTest : public testing::TestWithParam<int> {
 protected:
  static comm::Drive drive() { return GetParam() == 0 ? comm::Drive::thread : comm::Drive::inline_; }
};

TEST_P(AsynchronousEasgdServersTest, TheCentreOfManyCopiesLearnsAndIsTheSameOnAllRanks) {
  JobOfServers job(drive());
  AsynchronousEasgd strategy(job.parts({.sync_period = "2", .servers = GetParam()}, {.name = "sgd"}));
  job.engine.target = 2;
  const double before = distance(job.weights(), job.weights() * 0 + 2);
  for (std::int64_t first = 1; first <= 101; first += 20) {
    const auto outcome = job.train(strategy, {.first = first, .last = first + 19});
    EXPECT_EQ(outcome.total.samples, 3.0 * 20 * job.copies()) << "each micro-batch once";
    EXPECT_TRUE(outcome.staleness.empty());
    EXPECT_NO_THROW(strategy.compare_copies(first + 19));
  }
  EXPECT_LT(distance(job.weights(), job.weights() * 0 + 2), 0.05 * before);
}

TEST_P(AsynchronousEasgdServersTest, CopiesAndCentreThatStartUnequalTakeTheFirstOnes) {
  JobOfServers job(drive(), unequal_model());
  AsynchronousEasgd strategy(job.parts({.sync_period = "2", .servers = GetParam()}, {.name = "sgd"}));
  job.engine.curvature = 0;
  job.train(strategy, {.first = 1, .last = 3});
  EXPECT_LT(distance(job.weights(), weights_of_rank_0()), kClosedForm) << "equal ones pull at each other";
}

// A short epoch ends before the period does: without an exchange there the centre would learn nothing.
TEST_P(AsynchronousEasgdServersTest, AnEpochThatIsShorterThanAPeriodReachesTheCentre) {
  JobOfServers job(drive());
  AsynchronousEasgd strategy(job.parts({.sync_period = "1000", .servers = GetParam()}, {.name = "sgd"}));
  job.engine.target = 2;
  const auto before = job.weights();
  job.train(strategy, {.first = 1, .last = 3});
  EXPECT_GT(distance(job.weights(), before), 1e-2);
}

TEST_P(AsynchronousEasgdServersTest, EachCopyIsSavedAndAServerNamesThem) {
  JobOfServers job(drive());
  AsynchronousEasgd strategy(
      job.parts({.sync_period = "2", .servers = GetParam()}, {.name = "sgd", .momentum = 0.9}));
  job.engine.target = job.rank() + 1.0;
  job.train(strategy, {.first = 1, .last = 4});
  const auto centre = job.weights();
  const int copies = job.copies() - GetParam();
  bool differs = false;
  std::size_t found = 0;
  for (const auto& tensor : strategy.state().tensors()) {
    if (!tensor.is_of_optimizer()) continue;
    ASSERT_TRUE(tensor.owner.copy) << tensor.group;
    EXPECT_EQ(tensor.owner.copy->count, copies);
    EXPECT_EQ(tensor.owner.copy->index, std::min(job.rank(), copies - 1));
    if (tensor.group != "optimizer/copy") continue;
    ++found;
    for (std::int64_t begin = 0; const auto* parameter : job.model().parameters()) {
      const auto count = parameter->value.numel();
      if (parameter->name == tensor.name)
        differs |= distance(tensor.value.flatten(), centre.narrow(0, begin, count)) > 0;
      begin += count;
    }
  }
  EXPECT_EQ(found, job.model().parameters().size());
  if (job.rank() < copies && job.units > 0) {
    EXPECT_TRUE(differs) << "the centre is the copy";
  }
}

TEST_P(AsynchronousEasgdServersTest, AGradientThatIsNotFiniteEndsTheRunWhenTheRanksMeet) {
  JobOfServers job(drive());
  AsynchronousEasgd strategy(job.parts({.sync_period = "2", .servers = GetParam()}, {.name = "sgd"}));
  job.engine.spoils = std::nan("");
  EXPECT_THROW(job.train(strategy, {.first = 1, .last = 6}), Error);
  EXPECT_FALSE(job.weights().isnan().any().item<bool>()) << "a spoiled gradient was applied";
}

INSTANTIATE_TEST_SUITE_P(Servers, AsynchronousEasgdServersTest, testing::Values(0, 1));

TEST(AsynchronousEasgdTest, WhatItCannotDoItRefusesWithAReason) {
  Setting setting{.mesh = {.data = 4}, .options = {.easgd_mode = "asynchronous"}};
  const auto& entry = find_strategy("easgd");
  EXPECT_TRUE(entry.can(setting).runs);
  EXPECT_TRUE(entry.can(setting).deals_work);
  EXPECT_FALSE(entry.can(setting).same_bits);
  EXPECT_FALSE(entry.can(setting).spares);
  setting.options.elasticity = 0.34;  // of 3 copies, with one server
  EXPECT_NE(entry.can(setting).runs.why_not.find("3 copies"), std::string::npos);
  setting.options.servers = 2;
  EXPECT_TRUE(entry.can(setting).runs);
  setting.options.sync_period = "adaptive";
  EXPECT_NE(entry.can(setting).runs.why_not.find("needs rounds"), std::string::npos);
  setting.options.sync_period = "16";
  setting.mesh.pipe = 2;
  EXPECT_NE(entry.can(setting).runs.why_not.find("mesh of data"), std::string::npos);
  setting.options.easgd_mode = "rounds";
  setting.options.elasticity = 0.2;
  EXPECT_TRUE(entry.can(setting).runs);
  EXPECT_FALSE(entry.can(setting).deals_work);
}

}  // namespace
}  // namespace dtrain::parallel
