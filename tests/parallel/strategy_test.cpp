#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/agreement.hpp"
#include "parallel/gradients/table_by_rows.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {
namespace {

/// Brings nothing: the fake engine computes without samples.
class NoSamples final : public SampleSource {
 public:
  Samples take(const StepPlan&, std::size_t) override { return {}; }
  std::vector<Samples> look_ahead(const StepPlan&) override { return {}; }
  void read_ahead() override {}
};

/// Gives each element of each parameter the same gradient in each micro-batch, by a backward pass.
class FakeEngine final : public StepEngine {
 public:
  explicit FakeEngine(models::Model& model) : model_(model) {}

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource&, LocalSums& sums,
                                      double loss_scale) override {
    sums.begin_step(static_cast<int>(plan.micro_batches.size()));
    std::vector<MicroBatchLoss> losses;
    for (const auto& micro_batch : plan.micro_batches) {
      at::Tensor all = at::zeros({});
      for (const auto* parameter : model_.parameters()) all = all + parameter->value.sum();
      (all * gradient * loss_scale).backward();
      sums.taken_back(static_cast<int>(micro_batch.index));
      losses.push_back({micro_batch.index,
                        {.loss = at::scalar_tensor(loss), .correct = {}, .weight = weight},
                        micro_batch.samples()});
    }
    return losses;
  }
  std::vector<const models::Parameter*> met_again() const override { return {}; }

  double gradient = 1;
  double loss = 3;
  double weight = 2;

 private:
  models::Model& model_;
};

class SynchronousTest : public testing::Test {
 protected:
  explicit SynchronousTest(std::optional<at::ScalarType> half = {}, double grad_clip = 0,
                           bool recovers = false, bool adapts_batch = false,
                           Synchronous::Shards shards = Synchronous::Shards::nothing,
                           const std::string& optimizer = "sgd", bool fused_kernels = false)
      : cuts_(cut_stages(std::vector<double>(model_->layers().size(), 1.0), 1, 1, model_->name())),
        engine_(*model_),
        strategy_(parts(half, grad_clip, recovers, adapts_batch, optimizer, fused_kernels), shards) {}

  StrategyParts parts(std::optional<at::ScalarType> half, double grad_clip, bool recovers, bool adapts_batch,
                      const std::string& optimizer, bool fused_kernels) {
    Setting setting;
    setting.fused_kernels = fused_kernels;
    setting.mesh.data = job_.data().size();
    setting.half = half;
    setting.recovers = recovers;
    setting.adapts_batch = adapts_batch;
    setting.optimizer.name = optimizer;
    setting.micro_batches = job_.data().size();
    setting.model = model_.get();
    return {.setting = std::move(setting),
            .world = job_.data(),
            .data = job_.data(),
            .pipe = job_.pipe(),
            .tensor = job_.tensor(),
            .queue = job_.queue(),
            .model = *model_,
            .cuts = cuts_,
            .engine = engine_,
            .sink = job_.sink(),
            .grad_clip = grad_clip,
            .requests = [this] { return requests_; }};
  }

  /// One micro-batch on each rank.
  StepOutcome step(std::int64_t number, double learning_rate = 0.5) {
    const StepPlan plan{
        .number = number,
        .micro_batches = {{.index = static_cast<std::uint32_t>(job_.rank()), .ids = {1, 2, 3}}},
        .learning_rate = learning_rate};
    return strategy_.step(plan, samples_);
  }

  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    for (const auto* parameter : model_->parameters()) all.push_back(parameter->value.detach().clone());
    return all;
  }

  /// All weights are those of `before` less `by`.
  void expect_moved(const std::vector<at::Tensor>& before, double by) {
    const auto now = weights();
    for (std::size_t i = 0; i < now.size(); ++i) {
      EXPECT_TRUE(at::allclose(now[i], before[i] - by, 1e-5, 1e-6)) << i << " by " << by;
    }
  }

  JobOfTest job_;
  std::unique_ptr<models::Model> model_ = small_model();
  StageCuts cuts_;
  NoSamples samples_;
  FakeEngine engine_;
  StepRequests requests_;
  Synchronous strategy_;
};

TEST_F(SynchronousTest, AllCopiesApplyTheSumOfGradientsOverTheSumOfWeights) {
  const int ranks = job_.data().size();
  const auto before = weights();
  engine_.gradient = job_.rank() + 1.0;
  engine_.weight = 2.0 * (job_.rank() + 1);
  const auto outcome = step(1);
  // The gradients' sum is n (n + 1) / 2, the weights' sum twice that.
  expect_moved(before, 0.5 * 0.5);
  EXPECT_DOUBLE_EQ(outcome.own.weight, engine_.weight);
  EXPECT_DOUBLE_EQ(outcome.total.weight, ranks * (ranks + 1.0));
  EXPECT_DOUBLE_EQ(outcome.total.loss, 3.0 * ranks);
  EXPECT_DOUBLE_EQ(outcome.total.samples, 3.0 * ranks);
  EXPECT_DOUBLE_EQ(outcome.total.micro_batches, ranks);
  const auto count = static_cast<double>(model_->parameter_count());
  EXPECT_NEAR(outcome.gradient_norm, 0.5 * std::sqrt(count), 1e-4);
  EXPECT_FALSE(outcome.left_out);
}

TEST_F(SynchronousTest, RequestsOfOneRankReachAll) {
  requests_.stop = job_.rank() == 0 ? 1 : 0;
  requests_.save = 1;
  const auto outcome = step(1);
  EXPECT_EQ(outcome.requests.stop, 1);
  EXPECT_EQ(outcome.requests.save, job_.data().size());
}

TEST_F(SynchronousTest, AGradientThatIsNotFiniteEndsTheRunBeforeAnyRankUpdates) {
  const auto before = weights();
  const bool last = job_.rank() == job_.data().size() - 1;
  if (last) engine_.gradient = std::numeric_limits<double>::infinity();
  try {
    step(7);
    ADD_FAILURE() << "the step was applied";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "the gradient is not finite");
    EXPECT_NE(error.subject().find("step 7, output_fc"), std::string::npos) << error.subject();
  }
  expect_moved(before, 0);
}

TEST_F(SynchronousTest, CopiesThatDifferAreNamed) {
  step(1);
  EXPECT_NO_THROW(strategy_.compare_copies(1));
  // The ranks of a node share one copy, which cannot differ: the comparison itself.
  const auto values = at::full({8}, job_.rank() == job_.data().size() - 1 ? 1.0 : 0.0);
  const auto compare = [&] { require_same_copies(job_.data(), job_.data(), *model_, values, 4); };
  if (job_.data().size() == 1) {
    EXPECT_NO_THROW(compare());
    return;
  }
  try {
    compare();
    ADD_FAILURE() << "one copy is another";
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), "step 4");
    const auto last = std::to_string(job_.data().size() - 1);  // of two the first counts as usual
    EXPECT_EQ(error.problem(), "rank " + last + " holds other weights or statistics than the other copies");
  }
}

class ShardedGradientsTest : public SynchronousTest {
 protected:
  ShardedGradientsTest() : SynchronousTest({}, 0, false, false, Synchronous::Shards::gradients) {}
};

TEST_F(ShardedGradientsTest, ShardsMakeTheSameUpdateAndTheSameNorm) {
  const auto before = weights();
  engine_.gradient = job_.rank() + 1.0;
  engine_.weight = 2.0 * (job_.rank() + 1);
  const auto outcome = step(1);
  expect_moved(before, 0.5 * 0.5);
  EXPECT_NEAR(outcome.gradient_norm, 0.5 * std::sqrt(static_cast<double>(model_->parameter_count())), 1e-4);
  EXPECT_NO_THROW(strategy_.compare_copies(1));
}

TEST_F(ShardedGradientsTest, AGradientThatIsNotFiniteIsFoundInTheShardsAndNamed) {
  step(1);
  const auto before = weights();
  if (job_.rank() == 0) engine_.gradient = std::numeric_limits<double>::quiet_NaN();
  try {
    step(2);
    ADD_FAILURE() << "the step was applied";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "the gradient is not finite");
    EXPECT_NE(error.subject().find("step 2, output_fc"), std::string::npos) << error.subject();
  }
  expect_moved(before, 0);
}

class ClippedTest : public SynchronousTest {
 protected:
  ClippedTest() : SynchronousTest({}, 0.01) {}
};

TEST_F(ClippedTest, TheMeanGradientIsScaledToTheLimit) {
  const auto before = weights();
  step(1);
  const auto count = static_cast<double>(model_->parameter_count());
  expect_moved(before, 0.5 * 0.01 / std::sqrt(count));
}

class AdaptingTest : public SynchronousTest {
 protected:
  AdaptingTest() : SynchronousTest({}, 0, false, true) {}
};

TEST_F(AdaptingTest, TheNoiseFollowsFromTheGradientsOfSingleCopies) {
  const double ranks = job_.data().size();
  engine_.gradient = job_.rank() + 1.0;
  EXPECT_EQ(step(1).total.copies, 0) << "is not measured";
  const auto total = step(AdaptiveBatch::kEvery).total;
  ASSERT_EQ(total.copies, ranks);
  const auto count = static_cast<double>(model_->parameter_count());
  double squares = 0;  // each element of a mean gradient is (rank + 1) / 2
  for (int rank = 0; rank < job_.data().size(); ++rank) squares += count * std::pow((rank + 1.0) / 2, 2);
  EXPECT_NEAR(total.copy_squares / squares, 1, 1e-6);
  EXPECT_NEAR(total.copy_inverse, ranks / 3, 1e-12);
  const auto* adaptive = strategy_.adaptive_batch();
  ASSERT_NE(adaptive, nullptr);
  if (job_.data().size() == 1) {
    EXPECT_TRUE(std::isnan(adaptive->noise_scale()));
    return;
  }
  const double small = squares / ranks;
  const double large = count * std::pow((ranks + 1) / 4, 2);
  const double between = 1.0 / 3 - 1 / (3 * ranks);
  const double noise = (small - large) / between;
  const double signal = (large / 3 - small / (3 * ranks)) / between;
  EXPECT_NEAR(adaptive->noise_scale() / (noise / signal), 1, 1e-5);
}

class HalfTest : public SynchronousTest {
 protected:
  HalfTest() : SynchronousTest(at::kHalf) {}
};

TEST_F(HalfTest, AGradientThatIsNotFiniteIsLeftOutAndTheScaleFalls) {
  const auto before = weights();
  const double scale = strategy_.scaler().scale();
  engine_.gradient = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(step(1).left_out);
  expect_moved(before, 0);
  EXPECT_EQ(strategy_.scaler().scale(), scale / 2);
  engine_.gradient = 1;
  EXPECT_FALSE(step(2).left_out);
  expect_moved(before, 0.5 * 0.5);  // the scale of the loss is divided out
  EXPECT_EQ(strategy_.scaler().updates(3), 2);
}

class RecoveringTest : public SynchronousTest {
 protected:
  RecoveringTest() : SynchronousTest(at::kHalf, 0, true) {}
};

TEST_F(RecoveringTest, AnUpdateIsRolledBackWithItsScale) {
  step(1);
  const auto before = weights();
  const auto scale = strategy_.scaler().state().good_steps;
  step(2);
  job_.data().barrier().wait();  // nobody updates meanwhile
  strategy_.roll_back(2);
  job_.data().barrier().wait();
  expect_moved(before, 0);
  EXPECT_EQ(strategy_.scaler().state().good_steps, scale);
  strategy_.roll_back(2 + 1);  // no rank has begun it
  expect_moved(before, 0);
}

/// A run that is compared with another one.
struct Compared final : SynchronousTest {
  Compared(std::optional<at::ScalarType> half, double grad_clip, const std::string& optimizer,
           bool fused_kernels, bool recovers = false)
      : SynchronousTest(half, grad_clip, recovers, false, Synchronous::Shards::nothing, optimizer,
                        fused_kernels) {}
  void TestBody() override {}

  /// What each step came to, in their order; `gradients`: of each. Checkpoints are saved after the second.
  std::vector<StepOutcome> run(const std::vector<double>& gradients) {
    std::vector<StepOutcome> outcomes;
    std::int64_t number = 0;
    for (const double gradient : gradients) {
      engine_.gradient = gradient;
      engine_.loss = 3 + gradient;
      const auto outcome = step(++number);
      if (!outcome.late || outcome.total.samples > 0) outcomes.push_back(outcome);
      if (number == 2 || number == std::ssize(gradients)) settle(outcomes);
    }
    EXPECT_EQ(strategy_.settle().has_value(), false) << "all is told";
    return outcomes;
  }
  void settle(std::vector<StepOutcome>& outcomes) {
    if (auto rest = strategy_.settle()) outcomes.push_back(*rest);
  }
  using SynchronousTest::engine_;
  using SynchronousTest::job_;
  using SynchronousTest::step;
  using SynchronousTest::strategy_;
  using SynchronousTest::weights;
};

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(LateDecisionTest, StepsThatTheDeviceDecidesAreThoseOfTheCpu) {
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    for (const double clip : {0.0, 0.01}) {
      Compared usual({}, clip, optimizer, false);
      Compared late({}, clip, optimizer, true);
      const std::vector<double> gradients = {1, 0.25, 3, -2, 1e-3};
      const auto expected = usual.run(gradients);
      const auto found = late.run(gradients);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].late, late.job_.data().size() == 1) << "memory that ranks share is in parts";
        EXPECT_EQ(found[i].total.loss, expected[i].total.loss) << i;
        EXPECT_EQ(found[i].total.weight, expected[i].total.weight);
        EXPECT_EQ(found[i].total.samples, expected[i].total.samples);
        EXPECT_NEAR(found[i].gradient_norm / expected[i].gradient_norm, 1, 1e-12) << "the sum's order";
      }
      const auto weights = usual.weights();
      const auto same = late.weights();
      for (std::size_t i = 0; i < weights.size(); ++i)
        EXPECT_TRUE(same[i].equal(weights[i])) << optimizer << " " << clip;
    }
  }
}

TEST(LateDecisionTest, TheLossScaleFallsOneStepLater) {
  Compared usual(at::kHalf, 0.5, "adam", false);
  Compared late(at::kHalf, 0.5, "adam", true);
  const std::vector<double> gradients = {1, 2, kInfinite, 0.5, kInfinite, 1};
  const auto expected = usual.run(gradients);
  const auto found = late.run(gradients);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].left_out, expected[i].left_out) << i;
  EXPECT_EQ(late.strategy_.scaler().scale(), usual.strategy_.scaler().scale());
  EXPECT_EQ(late.strategy_.scaler().updates(7), usual.strategy_.scaler().updates(7)) << "4 were made";
  const auto weights = usual.weights();
  const auto same = late.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(same[i].equal(weights[i])) << i;
}

TEST(LateDecisionTest, AGradientThatIsNotFiniteChangesNothingAndEndsTheRun) {
  for (const bool at_the_end : {false, true}) {
    Compared late({}, 0, "adam", true);
    late.step(1);
    const auto before = late.weights();
    late.engine_.gradient = kInfinite;
    try {
      late.step(2);
      at_the_end ? static_cast<void>(late.strategy_.settle()) : static_cast<void>(late.step(3));
      ADD_FAILURE() << "the step was applied";
    } catch (const Error& error) {
      EXPECT_EQ(error.problem(), "the gradient is not finite");
      EXPECT_NE(error.subject().find("step 2, output_fc"), std::string::npos) << error.subject();
    }
    const auto now = late.weights();
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(before[i])) << i;
  }
}

TEST(LateDecisionTest, ARunThatMayHaveToTakeAStepBackIsDecidedByTheCpu) {
  Compared recovers({}, 0, "adam", true, true);
  EXPECT_FALSE(recovers.step(1).late);
}

TEST(AbilitiesTest, SayWhereStepsCannotBeCutBySpeedOrNoise) {
  const auto can = [](const auto& change) {
    Setting setting;
    change(setting);
    return Synchronous::can(setting);
  };
  EXPECT_TRUE(can([](Setting& s) { s.mesh.pipe = 2; }).owns_by_speed);
  EXPECT_TRUE(can([](Setting& s) { s.reproducible = true; }).owns_by_speed);
  EXPECT_FALSE(can([](Setting& s) { s.on_device = true; }).owns_by_speed);
  EXPECT_FALSE(can([](Setting& s) { s.adapts_batch = true; }).owns_by_speed);
  EXPECT_FALSE(can([](Setting& s) { s.adapts_batch = s.recovers = true; }).rolls_back);
  EXPECT_TRUE(can([](Setting&) {}).adapts_batch);
  EXPECT_FALSE(can([](Setting& s) { s.mesh.pipe = 2; }).adapts_batch);
  EXPECT_FALSE(can([](Setting& s) { s.mesh.tensor = 2; }).adapts_batch);
  EXPECT_FALSE(can([](Setting& s) { s.reproducible = true; }).adapts_batch);
  EXPECT_FALSE(can([](Setting& s) { s.on_device = true; }).adapts_batch);
  EXPECT_FALSE(find_strategy("easgd").can({}).owns_by_speed);
  EXPECT_FALSE(find_strategy("easgd").can({}).adapts_batch);
}

Setting plain() { return {.optimizer = {.name = "adam"}, .global_batch = 8, .micro_batches = 1}; }

TEST(AbilitiesTest, SayWhyStepsAreNotReplayed) {
  auto setting = plain();
  EXPECT_EQ(Synchronous::can(setting).replays_graphs.why_not, "the CPU computes");
  setting.on_device = true;
  EXPECT_TRUE(Synchronous::can(setting).replays_graphs);
  const auto why = [&](const auto& change) {
    auto changed = setting;
    change(changed);
    return Synchronous::can(changed).replays_graphs.why_not;
  };
  EXPECT_EQ(why([](Setting& s) { s.no_device_graphs = "--device-graphs off"; }), "--device-graphs off");
  EXPECT_NE(why([](Setting& s) { s.mesh.pipe = 2; }), "");
  EXPECT_NE(why([](Setting& s) { s.mesh.tensor = 2; }), "");
  EXPECT_NE(why([](Setting& s) { s.samples_alike = false; }), "");
  EXPECT_NE(why([](Setting& s) { s.reproducible = true; }), "");
  EXPECT_NE(why([](Setting& s) { s.class_weights = true; }), "");
  EXPECT_NE(why([](Setting& s) { s.injects_faults = true; }), "");
}

TEST(AbilitiesTest, OnlyATableMuchLargerThanAStepIsUpdatedByRows) {
  const auto nbow = models::find_model("nbow").make(
      {.task = "text_classification", .sample_shape = {20}, .classes = 2, .vocabulary = 4000}, {});
  auto setting = plain();
  setting.sample_extent = 20;
  EXPECT_FALSE(table_by_rows(setting)) << "there is no model";
  setting.model = nbow.get();
  EXPECT_TRUE(table_by_rows(setting));
  EXPECT_TRUE(Synchronous::can(setting).updates_by_rows);
  const auto can = [&](const auto& change) {
    auto changed = setting;
    change(changed);
    return static_cast<bool>(Synchronous::can(changed).updates_by_rows);
  };
  EXPECT_FALSE(can([](Setting& s) { s.mesh.pipe = 2; }));
  EXPECT_FALSE(can([](Setting& s) { s.reproducible = true; }));
  EXPECT_FALSE(can([](Setting& s) { s.half = at::kHalf; }));
  EXPECT_TRUE(can([](Setting& s) { s.half = at::kBFloat16; }));
  EXPECT_FALSE(can([](Setting& s) { s.on_device = true; }));
  EXPECT_FALSE(can([](Setting& s) { s.own_kernels = false; }));
  EXPECT_FALSE(can([](Setting& s) { s.optimizer.weight_decay = 0.1; }));
  setting.recovers = true;
  EXPECT_FALSE(Synchronous::can(setting).rolls_back) << "a step changes rows ahead";
  setting.global_batch = 4000;
  EXPECT_FALSE(table_by_rows(setting)) << "a step uses most rows";
  EXPECT_TRUE(Synchronous::can(setting).rolls_back);
}

TEST(AbilitiesTest, AnUpdateIsRolledBackWhereTheRunGoesOnAndTheCpuHoldsAll) {
  auto setting = plain();
  EXPECT_FALSE(Synchronous::can(setting).rolls_back);
  setting.recovers = true;
  EXPECT_TRUE(Synchronous::can(setting).rolls_back);
  setting.on_device = true;
  EXPECT_FALSE(Synchronous::can(setting).rolls_back);
}

TEST(StrategiesTest, AnUnknownOneNamesThoseThereAre) {
  EXPECT_EQ(find_strategy("ddp").name, "ddp");
  try {
    find_strategy("zero9");
    ADD_FAILURE() << "there is no zero9";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("use one of ddp"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dtrain::parallel
