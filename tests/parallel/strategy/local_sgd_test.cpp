#include "parallel/strategy/local_sgd.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "parallel/strategy/job_of_rounds.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kRounding = 1e-12;  // of doubles near 1, over some tens of operations

optim::OptimizerConfig sgd(double momentum = 0) { return {.name = "sgd", .momentum = momentum}; }

/// What a copy comes to from `start` in so many steps of plain sgd.
at::Tensor descended(const at::Tensor& start, const QuadraticEngine& engine, double rate, int steps) {
  return engine.target + (start - engine.target) * std::pow(1 - rate * engine.curvature, steps);
}

const StateTensor& find(const std::vector<StateTensor>& all, const std::string& group) {
  for (const auto& tensor : all) {
    if (tensor.group == group) return tensor;
  }
  throw Error("is not there", {.subject = group});
}

TEST(LocalSgdTest, CopiesMakeStepsOfTheirOwnAndTakeTheirMean) {
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "3"}, sgd()));
  const auto start = job.weights();
  job.engine.target = job.rank() + 1.0;
  EXPECT_FALSE(job.step(strategy, 1).agreed);
  const auto second = job.step(strategy, 2);
  EXPECT_FALSE(second.agreed);
  EXPECT_EQ(second.total.weight, 0);
  EXPECT_LT(distance(job.weights(), descended(start, job.engine, job.rate, 2)), kRounding);
  const auto third = job.step(strategy, 3);
  EXPECT_TRUE(third.agreed);
  EXPECT_DOUBLE_EQ(third.own.weight, 2);
  EXPECT_DOUBLE_EQ(third.total.weight, 3 * 2.0 * job.copies());
  EXPECT_DOUBLE_EQ(third.total.samples, 3 * 3.0 * job.copies());
  EXPECT_DOUBLE_EQ(third.total.micro_batches, 3.0 * job.copies());
  job.engine.target = (job.copies() + 1) / 2.0;  // the mean of all targets
  EXPECT_LT(distance(job.weights(), descended(start, job.engine, job.rate, 3)), kRounding);
  EXPECT_NO_THROW(strategy.compare_copies(3));
}

TEST(LocalSgdTest, OneStepARoundIsDdpForPlainSgdWhateverTheCopiesWeigh) {
  JobOfRounds job;
  JobOfRounds usual;
  LocalSgd strategy(job.parts({.sync_period = "1"}, sgd()));
  Synchronous ddp(usual.parts({}, sgd()));
  for (auto* one : {&job, &usual}) {
    one->engine.target = one->rank() + 1.0;
    one->engine.weight = one->rank() + 2.0;
  }
  for (std::int64_t number = 1; number <= 5; ++number) {
    const auto found = job.step(strategy, number);
    const auto expected = usual.step(ddp, number);
    EXPECT_NEAR(found.total.loss, expected.total.loss, 1e-9 * expected.total.loss);
    EXPECT_LT(distance(job.weights(), usual.weights()), kRounding) << number;
  }
}

TEST(LocalSgdTest, WithOneStepARoundTheRegistryTakesDdpItself) {
  const auto is_ddp = [](const StrategyOptions& options) {
    JobOfRounds job;
    const auto made = find_strategy("local_sgd").make(job.parts(options, sgd()));
    return dynamic_cast<const Synchronous*>(made.get()) != nullptr;
  };
  EXPECT_TRUE(is_ddp({.sync_period = "1"}));
  EXPECT_TRUE(is_ddp(
      {.sync_period = "1", .outer_optimizer = "nesterov", .outer_learning_rate = 1, .outer_momentum = 0}));
  EXPECT_FALSE(is_ddp({.sync_period = "1", .outer_optimizer = "nesterov"}));
  EXPECT_FALSE(is_ddp({.sync_period = "1", .sync_optimizer = "reset"}));
  EXPECT_FALSE(is_ddp({.sync_period = "2"}));
}

TEST(LocalSgdTest, TheFirstStepsAreInLockStep) {
  JobOfRounds job;
  JobOfRounds usual;
  LocalSgd strategy(job.parts({.sync_period = "4", .local_after = 2}, sgd(0.9)));
  Synchronous ddp(usual.parts({}, sgd(0.9)));
  for (auto* one : {&job, &usual}) one->engine.target = one->rank() + 1.0;
  for (std::int64_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(job.step(strategy, number).agreed);
    usual.step(ddp, number);
    EXPECT_EQ(distance(job.weights(), usual.weights()), 0) << number;
  }
  for (std::int64_t number = 3; number <= 5; ++number) EXPECT_FALSE(job.step(strategy, number).agreed);
  EXPECT_TRUE(job.step(strategy, 6).agreed);
}

TEST(LocalSgdTest, ACopyWithoutSamplesCountsNothingAndNoneWaitsForIt) {
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "2"}, sgd()));
  const auto start = job.weights();
  job.engine.target = 3;
  const bool idle = job.copies() > 1 && job.rank() == 0;
  const auto work = idle ? JobOfRounds::Work::none : JobOfRounds::Work::one_micro_batch;
  job.step(strategy, 1, false, work);
  EXPECT_TRUE(job.step(strategy, 2, false, work).agreed);
  EXPECT_LT(distance(job.weights(), descended(start, job.engine, job.rate, 2)), kRounding);
}

TEST(LocalSgdTest, ARoundEndsWhereTheRunPauses) {
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "4"}, sgd()));
  job.requests.save = 1;
  EXPECT_EQ(job.step(strategy, 1).requests.save, 0) << "nothing is agreed within a round";
  const auto outcome = job.step(strategy, 2, true);
  EXPECT_TRUE(outcome.agreed);
  EXPECT_EQ(outcome.requests.save, job.copies());
  for (std::int64_t number = 3; number <= 5; ++number) EXPECT_FALSE(job.step(strategy, number).agreed);
  EXPECT_TRUE(job.step(strategy, 6).agreed) << "a whole round follows";
}

TEST(LocalSgdTest, CopiesThatStartUnequalTakeTheFirstOnes) {
  JobOfRounds job(unequal_model());
  LocalSgd strategy(job.parts({.sync_period = "3"}, sgd()));
  EXPECT_EQ(distance(job.weights(), weights_of_rank_0()), 0);
  EXPECT_NO_THROW(strategy.compare_copies(0));
}

TEST(LocalSgdTest, TheOuterUpdateMovesFromTheRoundsBeginToTheMean) {
  JobOfRounds job;
  LocalSgd strategy(job.parts(
      {.sync_period = "2", .outer_optimizer = "nesterov", .outer_learning_rate = 0.5, .outer_momentum = 0},
      sgd()));
  auto expected = job.weights();
  job.engine.target = 2;
  for (std::int64_t number = 1; number <= 6; number += 2) {
    job.step(strategy, number);
    job.step(strategy, number + 1);
    expected = expected + 0.5 * (descended(expected, job.engine, job.rate, 2) - expected);
    EXPECT_LT(distance(job.weights(), expected), kRounding) << number;
  }
}

class OptimizerStateTest : public testing::TestWithParam<std::string> {};

TEST_P(OptimizerStateTest, IsKeptAveragedOrReset) {
  const std::string policy = GetParam();
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "1", .sync_optimizer = policy}, sgd(0.9)));
  job.engine.target = job.rank() + 1.0;
  const auto start = job.weights();
  const auto name = job.model().parameters().front()->name;
  job.step(strategy, 1);
  const auto tensors = strategy.state().tensors();
  const auto& momentum = find(tensors, "optimizer/momentum_buffer");
  double target = job.rank() + 1.0;
  if (policy == "average") target = (job.copies() + 1) / 2.0;
  const auto first = momentum.value.flatten()[0].item<double>();
  // The entries run from the last parameter to the first; its element is compared by what it started from.
  const auto& parameters = job.model().parameters();
  std::int64_t begin = 0;
  for (const auto* parameter : parameters) {
    if (parameter->name == momentum.name) break;
    begin += parameter->value.numel();
  }
  const double expected = policy == "reset" ? 0.0 : start[begin].item<double>() - target;
  EXPECT_NEAR(first, expected, kRounding);
  EXPECT_EQ(momentum.owner.copy.has_value(), policy == "keep");
  if (momentum.owner.copy) {
    EXPECT_EQ(momentum.owner.copy->index, job.rank());
    EXPECT_EQ(momentum.owner.copy->count, job.copies());
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, OptimizerStateTest, testing::Values("keep", "average", "reset"));

TEST(LocalSgdTest, AdamBeginsAnewWhereItsStateIsReset) {
  JobOfRounds job;
  job.engine.target = 1e6;  // far away: each of its first steps is as long as the rate
  LocalSgd strategy(
      job.parts({.sync_period = "2", .sync_optimizer = "reset", .local_after = 3}, {.name = "adam"}));
  auto before = job.weights();
  for (std::int64_t number = 1; number <= 7; ++number) {
    job.step(strategy, number);
    const auto now = job.weights();
    EXPECT_LT(distance(now, before + job.rate), 1e-4) << number;
    before = now;
  }
}

/// What a run that continues finds in the optimizer's state: that of another run, after many updates.
void take_over_state(LocalSgd& strategy) {
  for (const auto& moments : strategy.state().places()) {
    if (moments.is_of_optimizer()) at::Tensor(moments.value).fill_(1e6);
  }
  strategy.adopt_optimizer();
  strategy.scaler().go_on_from({.left_out = 0});
}

TEST(LocalSgdTest, ACheckpointCountsUpdatesFromWhereTheStateWasReset) {
  JobOfRounds job;
  LocalSgd strategy(
      job.parts({.sync_period = "2", .sync_optimizer = "reset", .local_after = 3}, {.name = "adam"}));
  for (std::int64_t number = 1; number <= 3; ++number) {
    job.step(strategy, number);
    EXPECT_EQ(strategy.scaler().updates(number), number) << "in lock-step";
  }
  for (std::int64_t number = 4; number <= 7; ++number) job.step(strategy, number);
  EXPECT_EQ(strategy.scaler().updates(8), 1) << "the next one is the first since";
  JobOfRounds other;
  LocalSgd keeps(other.parts({.sync_period = "2"}, {.name = "adam"}));
  for (std::int64_t number = 1; number <= 4; ++number) other.step(keeps, number);
  EXPECT_EQ(keeps.scaler().updates(5), 5);
}

TEST(LocalSgdTest, AStateThatIsResetForgetsThatOfAnotherRun) {
  JobOfRounds job;
  job.engine.target = 1e6;  // far away: each first step of Adam is as long as the rate
  LocalSgd strategy(job.parts({.sync_period = "2", .sync_optimizer = "reset"}, {.name = "adam"}));
  take_over_state(strategy);
  auto before = job.weights();
  for (std::int64_t number = 129; number <= 132; ++number) {
    job.step(strategy, number);
    const auto now = job.weights();
    EXPECT_LT(distance(now, before + job.rate), 1e-4) << number;
    before = now;
  }
}

TEST(LocalSgdTest, StepsInLockStepGoOnWithTheStateOfAnotherRun) {
  const auto weights_after = [](auto&& update) {
    JobOfRounds job;
    LocalSgd strategy(
        job.parts({.sync_period = "2", .sync_optimizer = "reset", .local_after = 200}, {.name = "adam"}));
    update(strategy);
    job.step(strategy, 129);
    return job.weights();
  };
  const auto anew = weights_after([](LocalSgd& /*strategy*/) {});
  const auto kept = weights_after([](LocalSgd& strategy) { take_over_state(strategy); });
  EXPECT_GT(distance(anew, kept), 0.1);
}

/// With BatchNorm, initialised.
std::unique_ptr<models::Model> network_with_statistics() {
  auto network =
      models::find_model("resnet18")
          .make({.task = "image_classification", .sample_shape = {3, 8, 8}, .classes = 2}, {{"width", "4"}});
  network->initialise(7);
  return network;
}

TEST(LocalSgdTest, RunningStatisticsBecomeTheMeanOfTheCopies) {
  JobOfRounds job(network_with_statistics());
  LocalSgd strategy(job.parts({.sync_period = "2"}, sgd()));
  job.step(strategy, 1);
  const double steps_before = 1;
  for (auto* buffer : job.model().buffers()) {
    if (buffer->update == models::Buffer::Update::moving_mean) buffer->value.fill_(job.rank() + 1.0);
  }
  job.step(strategy, 2);
  for (const auto* buffer : job.model().buffers()) {
    const bool is_mean = buffer->update == models::Buffer::Update::moving_mean;
    const double expected = is_mean ? (job.copies() + 1) / 2.0 : steps_before + 1;
    EXPECT_NEAR(buffer->value.to(at::kDouble).max().item<double>(), expected, 1e-6) << buffer->name;
    EXPECT_NEAR(buffer->value.to(at::kDouble).min().item<double>(), expected, 1e-6) << buffer->name;
  }
  EXPECT_NO_THROW(strategy.compare_copies(2));
}

TEST(LocalSgdTest, ACopyWithoutSamplesHasTheCountersOfTheOthers) {
  JobOfRounds job(network_with_statistics());
  LocalSgd strategy(job.parts({.sync_period = "2"}, sgd()));
  const bool idle = job.copies() > 1 && job.rank() == 0;
  job.step(strategy, 1, false, idle ? JobOfRounds::Work::none : JobOfRounds::Work::one_micro_batch);
  job.step(strategy, 2);
  EXPECT_NO_THROW(strategy.compare_copies(2));
}

TEST(LocalSgdTest, AGradientThatIsNotFiniteEndsTheRunWithItsRound) {
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "4"}, sgd()));
  job.step(strategy, 1);
  const auto before = job.weights();
  const bool last = job.rank() == job.copies() - 1;
  if (last) job.engine.spoils = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NO_THROW(job.step(strategy, 2)) << "the others do not know yet";
  job.engine.spoils = 1;
  EXPECT_NO_THROW(job.step(strategy, 3));
  if (last) {
    EXPECT_EQ(distance(job.weights(), before), 0) << "the copy went on";
  }
  try {
    job.step(strategy, 4);
    ADD_FAILURE() << "the round was applied";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "the gradient is not finite");
    EXPECT_NE(error.subject().find("step 2, output_fc"), std::string::npos) << error.subject();
  }
}

/// The two ways of an exchange: everything at once, and parts in 8 bits.
class DriftTest : public testing::TestWithParam<int> {};

TEST_P(DriftTest, ACopyThatHoldsAnotherModelIsNamedAfterALongRound) {
  JobOfRounds job;
  LocalSgd strategy(job.parts(
      {.sync_period = "40", .fragments = GetParam(), .exchange_type = GetParam() > 1 ? "int8" : "full"},
      sgd()));
  job.engine.target = job.rank() + 1.0;
  for (std::int64_t number = 1; number <= 40; ++number) job.step(strategy, number);
  strategy.synchronise();
  EXPECT_NO_THROW(strategy.compare_copies(40));
  if (job.copies() == 1) return;
  if (job.rank() == 1) {
    const at::NoGradGuard no_grad;
    job.model().parameters().back()->value.add_(1e-9);
  }
  try {
    strategy.compare_copies(40);
    ADD_FAILURE() << "two models go on as one";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 holds other weights"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Fragments, DriftTest, testing::Values(1, 3));

TEST(LocalSgdTest, AnAdaptivePeriodIsToldAndSaved) {
  JobOfRounds job;
  LocalSgd strategy(job.parts({.sync_period = "adaptive"}, sgd()));
  job.engine.target = 1;
  for (std::int64_t number = 1; number <= SyncPeriod::kInterval; ++number) job.step(strategy, number);
  EXPECT_EQ(job.told.size(), 1U);
  const auto tensors = strategy.state().tensors();
  EXPECT_LT(find(tensors, "optimizer/sync_period").value[0].item<double>(),
            static_cast<double>(SyncPeriod::kFirst));
}

TEST(LocalSgdTest, SaysWhatItCannotDo) {
  Setting setting{.options = {.sync_period = "16"}};
  EXPECT_TRUE(LocalSgd::can(setting).runs);
  EXPECT_FALSE(LocalSgd::can(setting).same_bits);
  EXPECT_FALSE(LocalSgd::can(setting).rolls_back);
  EXPECT_FALSE(LocalSgd::can(setting).copies_parts);
  setting.half = at::kHalf;
  EXPECT_FALSE(LocalSgd::can(setting).runs);
  setting.half = at::kBFloat16;
  EXPECT_TRUE(LocalSgd::can(setting).runs);
  setting.options.sync_period = "1";
  EXPECT_TRUE(LocalSgd::can(setting).same_bits);
}

}  // namespace
}  // namespace dtrain::parallel
