#include "parallel/strategy/asgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "parallel/data_types.hpp"
#include "parallel/strategy/job_of_servers.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kClosedForm = 1e-9;

// One copy is never late: with the share h of a step in each micro-batch, an update takes x to x - rate h (x
// - target), whatever the number of micro-batches in a step.
TEST(AsgdTest, OneCopyFollowsTheClosedForm) {
  JobOfServers job;
  const int servers = job.copies() - 1;
  Asgd strategy(job.parts({.servers = servers, .staleness = 4}, {.name = "sgd"}));
  const auto start = job.weights();
  job.engine.target = 2;
  const auto outcome = job.train(strategy, {.first = 1, .last = 5});
  EXPECT_TRUE(outcome.agreed);
  const int updates = 5 * job.copies();
  const double left = std::pow(1 - job.rate / job.copies(), updates);
  EXPECT_LT(distance(job.weights(), job.engine.target + (start - job.engine.target) * left), kClosedForm)
      << "also on a rank that serves a part";
  EXPECT_EQ(outcome.staleness.front(), updates);
  EXPECT_EQ(sum_of(outcome.staleness), updates);
  EXPECT_EQ(job.units, job.rank() == 0 ? updates : 0);
  EXPECT_EQ(outcome.total.samples, 3 * updates);
  EXPECT_NO_THROW(strategy.compare_copies(5));
}

/// With so many servers; 0: each rank serves beside computing, in a thread.
class AsgdServersTest : public testing::TestWithParam<int> {
 protected:
  static comm::Drive drive() { return GetParam() == 0 ? comm::Drive::thread : comm::Drive::inline_; }
};

TEST_P(AsgdServersTest, ManyCopiesUseEachMicroBatchOnceAndTrain) {
  JobOfServers job(drive());
  Asgd strategy(job.parts({.servers = GetParam(), .staleness = 2}, {.name = "sgd", .momentum = 0.5}));
  job.engine.target = 2;
  const double before = distance(job.weights(), job.weights() * 0 + 2);
  std::int64_t updates = 0;
  StepOutcome outcome;
  for (std::int64_t first = 1; first <= 41; first += 10) {
    outcome = job.train(strategy, {.first = first, .last = first + 9});
    updates += sum_of(outcome.staleness);
    EXPECT_EQ(outcome.total.samples, 3.0 * 10 * job.copies());
  }
  EXPECT_EQ(updates, 50 * job.copies()) << "micro-batches";
  EXPECT_LE(std::ssize(outcome.staleness), Dealing::most_late(job.copies(), 2) + 1);
  EXPECT_LT(distance(job.weights(), job.weights() * 0 + 2), 1e-2 * before);
  EXPECT_NO_THROW(strategy.compare_copies(50));
  bool has_momentum = false;
  for (const auto& tensor : strategy.state().tensors()) {
    if (!tensor.is_of_optimizer()) continue;
    has_momentum = true;
    EXPECT_FALSE(tensor.owner.copy) << "the servers' state is that of all";
    EXPECT_GT(tensor.value.abs().max().item<double>(), 0) << "it came from the servers";
  }
  EXPECT_TRUE(has_momentum);
}

TEST_P(AsgdServersTest, AWeightThatIsReadFromAFileIsWhatTheServersGoOnFrom) {
  JobOfServers job(drive());
  Asgd strategy(job.parts({.servers = GetParam(), .staleness = 1}, {.name = "sgd"}));
  {
    const at::NoGradGuard no_grad;
    for (auto* parameter : job.model().parameters()) parameter->value.fill_(5);
  }
  strategy.adopt_weights();
  job.engine.curvature = 0;
  job.train(strategy, {.first = 1, .last = 2});
  EXPECT_EQ(distance(job.weights(), job.weights() * 0 + 5), 0);
}

TEST_P(AsgdServersTest, CopiesThatStartUnequalTakeTheFirstOnes) {
  JobOfServers job(drive(), unequal_model());
  Asgd strategy(job.parts({.servers = GetParam(), .staleness = 1}, {.name = "sgd"}));
  job.engine.curvature = 0;
  job.train(strategy, {.first = 1, .last = 2});
  EXPECT_EQ(distance(job.weights(), weights_of_rank_0()), 0);
}

TEST_P(AsgdServersTest, CountersOfRunningStatisticsAreTheSameOnAllRanks) {
  auto network =
      models::find_model("resnet18")
          .make({.task = "image_classification", .sample_shape = {3, 8, 8}, .classes = 2}, {{"width", "4"}});
  network->initialise(7);
  JobOfServers job(drive(), std::move(network));
  Asgd strategy(job.parts({.servers = GetParam(), .staleness = 2}, {.name = "sgd"}));
  job.train(strategy, {.first = 1, .last = 3});
  EXPECT_NO_THROW(strategy.compare_copies(3));
}

INSTANTIATE_TEST_SUITE_P(Servers, AsgdServersTest, testing::Values(0, 1));

TEST(AsgdTest, AGradientThatIsNotFiniteEndsTheRunWhenTheRanksAgree) {
  JobOfServers job;
  Asgd strategy(job.parts({.servers = 1, .staleness = 1}, {.name = "sgd"}));
  const auto start = job.weights();
  if (job.rank() == 0) job.engine.spoils = std::nan("");
  try {
    job.train(strategy, {.first = 1, .last = 6});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(job.weights().isnan().any().item<bool>()) << "a spoiled gradient was applied";
}

TEST(AsgdTest, ALateUpdateMayHaveADividedRate) {
  for (const bool divides : {false, true}) {
    JobOfServers job;
    auto parts = job.parts({}, {.name = "sgd"});
    const int server = job.copies() - 1;
    auto values = at::zeros({4}, at::kDouble);
    if (job.rank() == 0) {
      const auto tell = [&](const ServerMessage& message) {
        auto fields = message.fields();
        parts.data.send(comm::Buffer::of(std::span<double>(fields)), server).wait();
      };
      const auto gradient = at::ones({4}, at::kDouble);
      for (const std::int64_t version : {6, 11}) {  // of 10 and 11 updates: 4 and none came between
        tell({.kind = ServerMessage::Kind::push, .version = version, .scale = 0.5, .rate = 0.1});
        parts.data.send(buffer_of(gradient), server).wait();
        ServerAnswer::Fields answer{};
        parts.data.receive(comm::Buffer::of(std::span<double>(answer)), server).wait();
      }
      tell({.kind = ServerMessage::Kind::finish});
    } else if (job.rank() == server) {
      std::vector<double> rates;
      const ServerLines lines(parts.data, parts.data);
      ParameterServer keeps(
          {.lines = lines,
           .queue = parts.queue,
           .sink = parts.sink,
           .copies = 1,
           .part = {0, 4},
           .values = values,
           .update =
               [&](const at::Tensor& gradient, double scale, double rate, std::int64_t number) {
                 EXPECT_EQ(gradient.sum().item<double>(), 4);
                 EXPECT_EQ(scale, 0.5);
                 EXPECT_EQ(number, 11 + std::ssize(rates));
                 rates.push_back(rate);
               },
           .divides_rate = divides});
      const auto late = keeps.serve(nullptr, 10);
      EXPECT_EQ(rates, (std::vector<double>{divides ? 0.025 : 0.1, 0.1}));
      EXPECT_EQ(late, (std::vector<std::int64_t>{1, 0, 0, 0, 1}));
    }
  }
}

TEST(AsgdTest, MessagesComeBackAsTheyWere) {
  const ServerMessage message{.kind = ServerMessage::Kind::pull,
                              .unit = {.step = 1'000'000'000'000, .micro_batch = 70'000},
                              .version = 1LL << 50,
                              .scale = 1e-9,
                              .rate = 0.3,
                              .sent_s = 12.5};
  const auto back = ServerMessage::from(message.fields());
  EXPECT_EQ(back.kind, message.kind);
  EXPECT_EQ(back.unit.step, message.unit.step);
  EXPECT_EQ(back.unit.micro_batch, message.unit.micro_batch);
  EXPECT_EQ(back.version, message.version);
  EXPECT_EQ(back.fields(), message.fields());
}

TEST(AsgdTest, WhatItCannotDoItRefusesWithAReason) {
  Setting setting{.mesh = {.data = 4}};
  EXPECT_TRUE(Asgd::can(setting).runs);
  EXPECT_TRUE(Asgd::can(setting).deals_work);
  EXPECT_FALSE(Asgd::can(setting).same_bits);
  EXPECT_FALSE(Asgd::can(setting).rolls_back);
  EXPECT_FALSE(Asgd::can(setting).spares);
  setting.mesh.pipe = 2;
  EXPECT_NE(Asgd::can(setting).runs.why_not.find("mesh of data"), std::string::npos);
  setting.mesh.pipe = 1;
  setting.half = at::kHalf;
  EXPECT_NE(Asgd::can(setting).runs.why_not.find("fp16"), std::string::npos);
  setting.half = {};
  setting.options.staleness = 0;
  EXPECT_TRUE(Asgd::can(setting).same_bits) << "lock-step is ddp";
  EXPECT_FALSE(Asgd::can(setting).deals_work);
}

}  // namespace
}  // namespace dtrain::parallel
