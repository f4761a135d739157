#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/product_sums.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"
#include "parallel/step/direct_engine.hpp"
#include "parallel/step/pipeline_engine.hpp"

namespace dtrain::parallel {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kSamples = 11;
constexpr int kPieces = 4;

/// Of a fake plan: sample i is row i of small_batch().
StepPlan plan_of(std::int64_t number) {
  StepPlan plan{.number = number};
  for (int k = 0; k < kPieces; ++k) {
    MicroBatch micro_batch{.index =
                               static_cast<std::uint32_t>(2 * k + 1)};  // as where ranks deal pieces in turn
    const auto part = part_of(kSamples, k, kPieces);
    for (auto id = part.begin; id < part.end; ++id) micro_batch.ids.push_back(id);
    plan.micro_batches.push_back(std::move(micro_batch));
  }
  return plan;
}

class FakeSource final : public SampleSource {
 public:
  Samples take(const StepPlan& plan, std::size_t m) override {
    taken.push_back(m);
    const auto rows = at::tensor(plan.micro_batches.at(m).ids);
    return {{batch_.inputs.index_select(0, rows)}, batch_.targets.index_select(0, rows)};
  }
  std::vector<Samples> look_ahead(const StepPlan&) override { return {}; }
  void read_ahead() override { ++read_ahead_calls; }

  std::vector<std::size_t> taken;
  int read_ahead_calls = 0;

 private:
  SmallBatch batch_ = small_batch(kSamples);
};

/// Writes down what an engine says.
class FakeSums final : public LocalSums {
 public:
  void begin_step(int micro_batches) override { said.push_back("begin " + std::to_string(micro_batches)); }
  void taken_back(int index) override { said.push_back("back " + std::to_string(index)); }
  std::vector<std::string> said;
};

/// What a strategy does with the sums of products.
class LocalProducts final : public LocalSums {
 public:
  explicit LocalProducts(ProductSums& sums) : sums_(sums) {}
  void begin_step(int micro_batches) override { sums_.begin_step(micro_batches); }
  void taken_back(int index) override { sums_.taken_back(index); }

 private:
  ProductSums& sums_;
};

class StepEngineTest : public testing::Test {
 protected:
  StepEngineTest()
      : cuts_(cut_stages(std::vector<double>(model_->layers().size(), 1.0), job_.pipe().size(), 1, "small")) {
    model_->hold(cuts_.layers_of(job_.rank()));
    parameters_.emplace(*model_, at::kDouble);
    pipeline_.emplace(Pipeline::Parts{
        .model = *model_, .cuts = cuts_, .pipe = job_.pipe(), .queue = job_.queue(), .sink = job_.sink()});
  }

  PipelineEngine engine(const std::function<void(PipelineEngine::Parts&)>& change = {}) {
    PipelineEngine::Parts parts{.model = *model_, .pipeline = *pipeline_, .pipelining = pipelining()};
    if (change) change(parts);
    return PipelineEngine(parts);
  }
  Pipelining pipelining() { return job_.pipe().size() > 1 ? Pipelining::one_f_one_b : Pipelining::layerwise; }

  JobOfTest job_{topology::Axis::pipe};
  std::unique_ptr<models::Model> model_ = small_model();
  StageCuts cuts_;
  std::optional<FlatParameters> parameters_;
  std::optional<Pipeline> pipeline_;
  FakeSource source_;
  FakeSums sums_;
};

TEST_F(StepEngineTest, GradientsAndLossesAreThoseOfTheWholeBatch) {
  auto whole = small_model();
  const FlatParameters of_whole(*whole, at::kDouble);
  const auto batch = small_batch(kSamples);
  const auto walk = whole_walk(*whole);
  auto passed = walk.forward({batch.inputs}, {});
  const auto expected = whole->loss(passed.outputs(), batch.targets);
  walk.backward(passed, expected.loss);

  auto run = engine();
  const auto losses = run.compute(plan_of(1), source_, sums_, 1.0);
  StepTotals totals;
  for (const auto& [index, sums, samples] : losses) totals.add(sums, samples);
  if (pipeline_->is_last()) {
    EXPECT_NEAR(totals.loss, expected.loss.item<double>(), 1e-12);
    EXPECT_EQ(totals.samples, kSamples);
    EXPECT_EQ(totals.weight, expected.weight);
    ASSERT_EQ(losses.size(), 4U);
    EXPECT_EQ(losses[1].micro_batch, 3U);
  } else {
    EXPECT_TRUE(losses.empty());
  }
  std::map<std::string, at::Tensor> gradients;
  for (const auto* parameter : whole->parameters()) gradients[parameter->name] = parameter->value.grad();
  for (const auto* parameter : model_->parameters()) {
    ASSERT_TRUE(parameter->value.grad().defined()) << parameter->name;
    EXPECT_TRUE(at::allclose(parameter->value.grad(), gradients.at(parameter->name), 1e-10, 1e-13));
  }
}

TEST_F(StepEngineTest, APerceptronNeedsNoGraphWhereFactorsAreWanted) {
  if (job_.pipe().size() > 1) GTEST_SKIP() << "one rank computes it as a whole";
  auto behind = engine();
  DirectEngine run(behind, models::DirectNetwork::of(*model_), job_.sink());
  const auto expected = run.compute(plan_of(1), source_, sums_, 1.0);  // gradients are wanted
  std::map<std::string, at::Tensor> gradients;
  for (const auto* parameter : model_->parameters()) {
    ASSERT_TRUE(parameter->value.grad().defined()) << parameter->name;
    gradients[parameter->name] = parameter->value.grad().clone();
    parameter->value.mutable_grad().reset();
  }
  const auto products = ProductSums::make(*parameters_, trained_products(*model_), job_.data(),
                                          {.samples = 24, .micro_batches = 8}, job_.sink(), true);
  ASSERT_NE(products, nullptr);
  for (StepEngine* const with : std::initializer_list<StepEngine*>{&behind, &run}) {
    LocalProducts sums(*products);
    const auto losses = with->compute(plan_of(1), source_, sums, 1.0);
    products->finish();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_EQ(losses[i].micro_batch, expected[i].micro_batch);
      EXPECT_EQ(losses[i].samples, expected[i].samples);
      EXPECT_FALSE(losses[i].sums.loss.requires_grad());
      EXPECT_NEAR(losses[i].sums.loss.item<double>(), expected[i].sums.loss.item<double>(), 1e-12);
    }
    for (const auto& entry : parameters_->entries()) {
      const auto found = FlatParameters::view(products->gradients(), entry);
      EXPECT_TRUE(at::allclose(found, gradients.at(entry.parameter->name), 1e-10, 1e-13));
    }
  }
}

/// Counts the steps that reach the engine it stands for.
class CountedEngine final : public StepEngine {
 public:
  explicit CountedEngine(StepEngine& engine) : engine_(engine) {}
  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double loss_scale) override {
    ++steps;
    return engine_.compute(plan, samples, sums, loss_scale);
  }
  std::vector<const models::Parameter*> met_again() const override { return engine_.met_again(); }
  void keep_weights(LayerWeights& /*weights*/, int /*micro_batches*/) override {}
  int steps = 0;

 private:
  StepEngine& engine_;
};

TEST_F(StepEngineTest, ANetworkOfOneMicroBatchNeedsNoGraph) {
  if (job_.pipe().size() > 1) GTEST_SKIP() << "one rank computes it as a whole";
  at::set_num_threads(1);
  auto whole = engine();
  CountedEngine behind(whole);
  DirectEngine run(behind, models::DirectNetwork::of(*model_), job_.sink());
  auto plan = plan_of(1);
  plan.micro_batches.resize(1);
  std::map<std::string, at::Tensor> gradients;
  for (StepEngine* const with : std::initializer_list<StepEngine*>{&whole, &run}) {
    for (auto* const parameter : model_->parameters()) parameter->value.mutable_grad().reset();
    ASSERT_EQ(with->compute(plan, source_, sums_, 1.0).size(), 1U);
    for (const auto* const parameter : model_->parameters()) {
      ASSERT_TRUE(parameter->value.grad().defined()) << parameter->name;
      auto& expected = gradients[parameter->name];
      if (!expected.defined()) expected = parameter->value.grad().clone();
      EXPECT_TRUE(at::allclose(parameter->value.grad(), expected, 1e-10, 1e-13)) << parameter->name;
    }
  }
  EXPECT_EQ(behind.steps, 0);
  run.compute(plan, source_, sums_, 2.0);
  EXPECT_EQ(behind.steps, 1) << "a scaled loss";
  run.compute(plan_of(1), source_, sums_, 1.0);
  EXPECT_EQ(behind.steps, 2) << "several micro-batches";
  struct Weights final : LayerWeights {
    void bring(std::int64_t /*layer*/, std::optional<std::int64_t> /*next*/) override {}
    void drop(std::int64_t /*layer*/, Pass /*pass*/) override {}
  } weights;
  run.keep_weights(weights, 1);
  run.compute(plan, source_, sums_, 1.0);
  EXPECT_EQ(behind.steps, 3) << "weights come layer by layer";
}

TEST_F(StepEngineTest, TakesEachMicroBatchOnceAndReportsEachOneThatIsDone) {
  auto run = engine();
  run.compute(plan_of(1), source_, sums_, 1.0);
  EXPECT_THAT(source_.taken, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sums_.said, ElementsAre("begin 4", "back 1", "back 3", "back 5", "back 7"));
  EXPECT_EQ(source_.read_ahead_calls, 0) << "the CPU has nothing to do meanwhile";
}

TEST_F(StepEngineTest, AStepWithoutMicroBatchesComputesNothing) {
  auto run = engine();
  EXPECT_TRUE(run.compute({.number = 3}, source_, sums_, 1.0).empty());
  EXPECT_THAT(sums_.said, ElementsAre("begin 0"));
  EXPECT_TRUE(source_.taken.empty());
}

TEST_F(StepEngineTest, OnlyAFaultOnDemandSpoilsTheLoss) {
  bool wanted = true;
  auto run = engine([&](PipelineEngine::Parts& parts) { parts.spoils_loss = [&] { return wanted; }; });
  for (const auto& loss : run.compute(plan_of(1), source_, sums_, 1.0)) {
    EXPECT_TRUE(std::isnan(loss.sums.loss.item<double>()));
  }
  wanted = false;
  for (const auto& loss : run.compute(plan_of(2), source_, sums_, 1.0)) {
    EXPECT_TRUE(std::isfinite(loss.sums.loss.item<double>()));
  }
}

TEST_F(StepEngineTest, ADeviceReadsTheNextStepAheadWhereOneFollows) {
  auto run = engine([](PipelineEngine::Parts& parts) { parts.device = at::Device(at::kMeta); });
  auto plan = plan_of(1);
  run.compute(plan, source_, sums_, 1.0);
  EXPECT_EQ(source_.read_ahead_calls, 0);
  plan.another_follows = true;
  run.compute(plan, source_, sums_, 1.0);
  EXPECT_EQ(source_.read_ahead_calls, 1);
}

}  // namespace
}  // namespace dtrain::parallel
