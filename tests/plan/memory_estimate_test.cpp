#include "plan/memory_estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "plan/planned_model.hpp"

namespace dtrain::plan {
namespace {

MemoryEstimate of(const Footprint& footprint, std::int64_t repeated = 0) {
  return estimate_memory(footprint, *planned_model(), one_stage(), 0, {12}, repeated);
}

TEST(MemoryEstimateTest, ParametersGradientsAndOptimizerAreOfTheirElements) {
  const auto adam = of({.optimizer_states = 2});
  EXPECT_EQ(adam.parameters, 371 * 4);
  EXPECT_EQ(adam.gradients, 371 * 4);
  EXPECT_EQ(adam.optimizer, 371 * 4 * 2);
  const auto sgd_in_double = of({.element_bytes = 8});
  EXPECT_EQ(sgd_in_double.parameters, 371 * 8);
  EXPECT_EQ(sgd_in_double.optimizer, 0);
  EXPECT_EQ(adam.held(), 371 * 4 * 4);
  EXPECT_GE(adam.total(), 371 * 4 * 4 + adam.activations);
}

TEST(MemoryEstimateTest, WhatTheCopiesShareOutIsDivided) {
  const auto shards =
      of({.optimizer_states = 2, .optimizer_shards = 4, .gradient_shards = 4, .parameter_shards = 4});
  EXPECT_EQ(shards.parameters + shards.gradients + shards.optimizer, 371 * 16 / 4);
  const auto gradients = of({.optimizer_states = 2, .optimizer_shards = 4, .gradient_shards = 4});
  EXPECT_EQ(gradients.parameters + gradients.gradients + gradients.optimizer, 371 * 7);
}

TEST(MemoryEstimateTest, ShardsTravelInBucketsAndLayersAreBroughtTogether) {
  // input_fc, the largest layer, has 208 parameters, and the largest two with nothing between them 208 + 0.
  EXPECT_EQ(of({.copies = 4}).exchange, 0);
  const auto buckets = of({.copies = 4, .optimizer_shards = 4, .gradient_shards = 4, .bucket_bytes = 1});
  EXPECT_EQ(buckets.exchange, 2 * (192 + 192 / 4) * 4) << "a weight of 192, one leaves and one is filled";
  const auto layers = of({.copies = 4,
                          .optimizer_shards = 4,
                          .gradient_shards = 4,
                          .parameter_shards = 4,
                          .gathers_layers = true});
  EXPECT_EQ(layers.exchange, (208 + 2 * (208 + 208 / 4)) * 4);
  EXPECT_EQ(of({.copies = 4, .gradient_shards = 1, .reproducible = true}).exchange, 2 * 4 * 128 * 4)
      << "a slice of each rank's sums, rounded up, sent and received";
}

TEST(MemoryEstimateTest, RanksThatMakeGradientsTogetherExchangeFactorsWhereThesePay) {
  // The layers of 12-16-8-3, so that a sample has 28 + 24 + 11 factors, beside 344 weights.
  EXPECT_EQ(of({.copies = 2, .micro_batches = 2, .largest_piece = 2, .makes_products = true}).exchange,
            2 * 2 * 63 * 4 / 2);
  EXPECT_EQ(of({.copies = 2, .micro_batches = 2, .largest_piece = 3, .makes_products = true}).exchange, 0);
  EXPECT_EQ(of({.copies = 2, .micro_batches = 2, .largest_piece = 2}).exchange, 0);
}

TEST(MemoryEstimateTest, CopiesOfTheStateAreKeptForCheckpointsAndToRollBack) {
  EXPECT_EQ(of({.optimizer_states = 2}).copies, 0);
  EXPECT_EQ(of({.optimizer_states = 2, .undoes = true}).copies, 371 * 12);
  EXPECT_EQ(of({.copies = 3, .optimizer_states = 2, .block_ranks = 3, .undoes = true}).copies, 371 * 4);
  EXPECT_EQ(of({.optimizer_states = 2, .saves = true}).copies, 371 * 12);
  EXPECT_EQ(of({.copies = 4, .optimizer_states = 2, .saves = true}).copies, 371 * 12 / 4);
  EXPECT_EQ(of({.copies = 4, .optimizer_states = 2, .saves = true, .smallest_share = 1 << 20}).copies,
            371 * 12)
      << "so little is written by one rank";
  const Footprint shards{.copies = 4,
                         .optimizer_states = 2,
                         .optimizer_shards = 4,
                         .gradient_shards = 4,
                         .parameter_shards = 4,
                         .gathers_layers = true,
                         .saves = true,
                         .smallest_share = 1 << 20};
  EXPECT_EQ(of(shards).copies, 371 * 12 / 4) << "each rank saves its shard";
}

TEST(MemoryEstimateTest, TheFirstValuesAreThereWhileTheyAreLaidOut) {
  const Footprint shards{.copies = 7,
                         .optimizer_shards = 7,
                         .gradient_shards = 7,
                         .parameter_shards = 7,
                         .gathers_layers = true};
  EXPECT_GE(of(shards).apart, (371 + 371 / 7 + 208) * 4);
  EXPECT_GE(of(shards).total(), of(shards).apart);
}

TEST(MemoryEstimateTest, ARunThatStartsInShardsHasOneAndALayerAtFirst) {
  Footprint shards{.copies = 7,
                   .optimizer_shards = 7,
                   .gradient_shards = 7,
                   .parameter_shards = 7,
                   .gathers_layers = true};
  const auto whole = of(shards).apart;
  shards.starts_in_shards = true;
  EXPECT_LE(of(shards).apart, whole);
  EXPECT_GE(of(shards).apart, (371 / 7 + 208 + 192) * 4) << "input_fc, and its weight before it is laid out";
}

TEST(MemoryEstimateTest, StateIn8BitsTakesItsBytesInLargeParametersAlone) {
  const Footprint coded{
      .optimizer_states = 2, .coded_states = 2, .coded_bytes = 1 + 4.0 / 256, .least_coded = 150};
  EXPECT_DOUBLE_EQ(of(coded).optimizer, 2 * (192 * (1 + 4.0 / 256) + (371 - 192) * 4));
  EXPECT_DOUBLE_EQ(of(coded).apart, of(coded).held() + 192 * 4 + 371 * 12)
      << "a tensor is decoded to be saved";
}

TEST(MemoryEstimateTest, OfStateInTheHostsMemoryAChunkIsOnTheDevice) {
  const auto few = of({.optimizer_states = 2, .offloaded_states = 2, .offloaded_chunk = 100});
  EXPECT_EQ(few.optimizer, 0);
  EXPECT_EQ(few.exchange, 2 * 100 * 4);
  const auto all = of({.optimizer_states = 2, .offloaded_states = 2, .offloaded_chunk = 1 << 20});
  EXPECT_EQ(all.exchange, 2 * 371 * 4) << "all in one chunk";
}

TEST(MemoryEstimateTest, WhatIsSavedAtTheEndIsBesideWhatIsHeld) {
  EXPECT_EQ(of({.optimizer_states = 2}).apart, 371 * (16 + 12));
  EXPECT_EQ(of({.copies = 4, .optimizer_states = 2}).apart, 371 * (16 + 12 / 4));
  EXPECT_EQ(of({.optimizer_states = 2, .saves = true}).apart, 371 * (16 + 12)) << "its copy stays";
}

TEST(MemoryEstimateTest, FrozenParametersHaveNoGradientAndNoOptimizerState) {
  auto model = planned_model();
  model->freeze([](const std::string& name) { return name.starts_with("input_fc"); });
  const auto estimate = estimate_memory({.optimizer_states = 1}, *model, one_stage(), 0, {12}, 0);
  EXPECT_EQ(estimate.parameters, 371 * 4);
  EXPECT_EQ(estimate.gradients, (371 - 208) * 4);
  EXPECT_EQ(estimate.optimizer, (371 - 208) * 4);
}

TEST(MemoryEstimateTest, InFrontOfTheFirstTrainedLayerNothingIsKept) {
  const auto activations = [](const std::string& frozen, std::int64_t repeated) {
    auto model = planned_model();
    model->freeze([&](const std::string& name) { return !frozen.empty() && name.starts_with(frozen); });
    return estimate_memory({.largest_piece = 10}, *model, one_stage(), 0, {12}, repeated).activations;
  };
  // Of a sample: 12 that come in, 16 that go into the first trained layer, 8 + 3 outputs behind it.
  EXPECT_EQ(activations("input_fc", 0), 10 * (12 + 16 + 11 + 16 + 8) * 4);
  EXPECT_EQ(activations("input_fc", 6), 10 * (12 + 16 + 8 + 8 + 8 + 16 + 8) * 4)
      << "and one that runs again has 8";
  EXPECT_EQ(activations("hidden_fc", 0), activations("", 0)) << "a gradient passes through it";
}

TEST(MemoryEstimateTest, ALayerInFrontOfTheFirstTrainedOneNeedsMemoryWhileItRuns) {
  auto model = models::find_model("mlp").make(
      {.task = "table_classification", .sample_shape = {12}, .classes = 3}, {{"hidden", "100,8"}});
  model->freeze([](const std::string& name) { return !name.starts_with("output_fc"); });
  const auto estimate = estimate_memory({.largest_piece = 10}, *model, one_stage(), 0, {12}, 0);
  EXPECT_EQ(estimate.activations, 10 * (12 + 100) * 4) << "more than 12 + 8 + 3 that are kept, and 8 + 3";
}

TEST(MemoryEstimateTest, ReproducibleSumsHoldGradientsOfSeveralMicroBatches) {
  // Of four pieces on one rank a binary tree holds up to three sums.
  EXPECT_EQ(of({.micro_batches = 4, .reproducible = true}).gradients, 371 * 4 * 3);
  EXPECT_EQ(of({.micro_batches = 4}).gradients, 371 * 4);
}

TEST(MemoryEstimateTest, ActivationsAreInputsOutputsAndTheLargestGradients) {
  // Of a sample: 12 inputs, 16 + 8 + 3 outputs (an activation overwrites its input), and in backward the
  // gradients of the first activation's outputs and inputs, 16 + 16.
  EXPECT_EQ(of({.largest_piece = 10}).activations, 10 * (12 + 27 + 32) * 4);
  EXPECT_EQ(of({.element_bytes = 8, .largest_piece = 10}).activations, 10 * (12 + 27 + 32) * 8);
}

TEST(MemoryEstimateTest, ALossThatTakesFactorsHasAPieceOfTheLogits) {
  const auto gpt = models::find_model("gpt").make(
      {.task = "language_modelling", .sample_shape = {1024}, .vocabulary = 50257},
      {{"preset", "gpt2"}, {"layers", "1"}});
  const auto cuts = parallel::cut_stages(std::vector<double>(gpt->layers().size(), 1.0), 1, 1, "gpt");
  const auto activations = [&](models::Kernels kernels, bool takes_factors) {
    const Footprint footprint{
        .half = true, .kernels = kernels, .loss_takes_factors = takes_factors, .largest_piece = 64};
    return estimate_memory(footprint, *gpt, cuts, 0, {1024}, 0).activations;
  };
  const double own = activations(models::Kernels::own, false);
  const double fused = activations(models::Kernels::fused, false);
  const double in_pieces = activations(models::Kernels::fused, true);
  const double tokens = 64 * 1024;
  const double logits = tokens * 50304 * 2;  // in bf16, padded
  const double converted = 768 * 2;          // the largest gradient of the last layer's own parameters
  EXPECT_NEAR(own - fused, (tokens * 50257 * 4) + converted - (tokens * 47 * 2), 1)
      << "no copy in full, padded columns";
  EXPECT_GT(fused - in_pieces, 1.5 * logits) << "neither logits nor their gradient";
  EXPECT_LT(in_pieces, own / 4);
}

TEST(MemoryEstimateTest, RepeatedLayersKeepTheirInputsOnly) {
  // All but the first, which has no backward pass, keep what comes in, 12 + 16 + 16 + 8 + 8, and one of them
  // has its outputs too: 16.
  EXPECT_EQ(of({.largest_piece = 10}, 6).activations, 10 * (60 + 16 + 32) * 4);
}

/// Gives what comes in, and a view of it beside.
class Passing : public models::Layer {
 public:
  explicit Passing(const std::string& name) : Layer(name) {
    parameters_.push_back({.name = name + ".weight", .value = at::ones({1})});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context& /*context*/) override {
    return {inputs[0], inputs[0].detach()};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return {inputs[0], inputs[0]};
  }
  models::Cost cost(const std::vector<models::Shape>& inputs) const override {
    return {.passed_on = 2.0 * static_cast<double>(inputs[0][0] * inputs[0][1])};
  }
};

class PassingModel : public models::Model {
 public:
  explicit PassingModel(std::vector<std::unique_ptr<models::Layer>> layers)
      : Model("passing", std::move(layers)) {}
  models::LossSums loss(const models::Tensors& /*outputs*/, const at::Tensor& /*targets*/) const override {
    return {};
  }
};

TEST(MemoryEstimateTest, WhatALayerPassesOnIsKeptOnce) {
  std::vector<std::unique_ptr<models::Layer>> layers;
  for (const auto* name : {"first", "second", "third"}) layers.push_back(std::make_unique<Passing>(name));
  const PassingModel model(std::move(layers));
  const parallel::StageCuts cuts{.ranks = 1, .layers = {{0, 3}}};
  const auto activations = [&](std::int64_t repeated) {
    return estimate_memory({.largest_piece = 10}, model, cuts, 0, {12}, repeated).activations;
  };
  constexpr double kGradients = 10 * (24 + 24) * 4;
  EXPECT_EQ(activations(0), 10 * 12 * 4 + kGradients);
  EXPECT_EQ(activations(3), 10 * 12 * 4 + kGradients) << "what comes in is what all three keep";
}

TEST(MemoryEstimateTest, ACopyInHalfPrecisionIsKeptOnceOrEachUseConvertsWhatItNeeds) {
  const auto none = of({.half = true});
  const auto copies = of({.half = true, .keeps_halves = true});
  EXPECT_EQ(none.parameters, 371 * 4);
  EXPECT_EQ(copies.parameters, 371 * (4 + 2));
  EXPECT_EQ(of({.half = true, .keeps_halves = true, .parameter_shards = 2, .block_ranks = 2}).parameters,
            371 * (4 + 2) / 2)
      << "of a block that two ranks share";
  EXPECT_GT(copies.apart, none.apart);
  // The first product needs no weight in backward.
  EXPECT_EQ(none.activations - copies.activations, (371 - 208) * 2);
  EXPECT_EQ(of({.keeps_halves = true}).parameters, 371 * 4) << "in full precision there is none";

  auto model = planned_model();
  model->freeze([](const std::string& name) { return name.starts_with("hidden_fc"); });
  const auto frozen = estimate_memory({.half = true, .keeps_halves = true}, *model, one_stage(), 0, {12}, 0);
  EXPECT_EQ(frozen.parameters, 371 * 4 + (371 - 136) * 2);
  EXPECT_EQ(frozen.activations - copies.activations, 136 * 2) << "what is frozen is converted for each use";
}

TEST(MemoryEstimateTest, StagesShareOutTheParameters) {
  const auto model = planned_model();
  const auto estimate = [&](int rank) {
    return estimate_memory({.micro_batches = 8, .pipelining = parallel::Pipelining::one_f_one_b}, *model,
                           two_stages(), rank, {12}, 0);
  };
  EXPECT_EQ(estimate(0).parameters, 208 * 4);
  EXPECT_EQ(estimate(1).parameters, (371 - 208) * 4);
}

TEST(MemoryEstimateTest, APipelineKeepsTheMicroBatchesThatAreUnderWay) {
  const auto model = planned_model();
  const auto activations = [&](parallel::Pipelining how, int rank, int micro_batches) {
    return estimate_memory({.micro_batches = micro_batches, .largest_piece = 10, .pipelining = how}, *model,
                           two_stages(), rank, {12}, 0)
        .activations;
  };
  constexpr double kOnce =
      10 * 28 * 4 + 192 * 4;  // the largest gradients of the first stage, a weight's among them
  constexpr double kEach = 10 * (12 + 16) * 4;  // of a micro-batch
  EXPECT_EQ(activations(parallel::Pipelining::gpipe, 0, 8), 8 * kEach + kOnce);
  EXPECT_EQ(activations(parallel::Pipelining::one_f_one_b, 0, 8), 2 * kEach + kOnce);
  EXPECT_EQ(activations(parallel::Pipelining::one_f_one_b, 0, 1), kEach + 10 * 32 * 4)
      << "the weight's is written where it stays";
}

TEST(MemoryEstimateTest, AnEvaluationHasOneLayersInputsAndOutputs) {
  EXPECT_EQ(evaluation_bytes({}, *planned_model(), {12}), (16 + 16) * 4) << "an activation's";
  EXPECT_EQ(evaluation_bytes({.element_bytes = 8}, *planned_model(), {12}), (16 + 16) * 8);
  EXPECT_EQ(evaluation_bytes({.half = true}, *planned_model(), {12}), (12 + 16) * (4 + 2))
      << "input_fc, and both converted";
  EXPECT_EQ(evaluation_beside({}, *planned_model()), 0);
  EXPECT_EQ(evaluation_beside({.half = true}, *planned_model()), 12 * 16 * 2) << "its weight";
}

/// A model that has something to save by running layers again, on one rank.
class RepeatedLayersTest : public testing::Test {
 protected:
  std::int64_t repeated(const std::string& what, double limit) const {
    return repeated_layers(
        {.what = what, .limit_bytes = static_cast<std::int64_t>(limit), .limit = "so much"}, kFootprint,
        *model_, cuts_, 0, kShape);
  }
  double total(std::int64_t count) const {
    return estimate_memory(kFootprint, *model_, cuts_, 0, kShape, count).total();
  }

  const models::Shape kShape{3, 32, 32};
  const Footprint kFootprint{.largest_piece = 64};
  std::unique_ptr<models::Model> model_ =
      models::find_model("resnet18")
          .make({.task = "image_classification", .sample_shape = kShape, .classes = 10}, {{"width", "4"}});
  std::int64_t all_ = static_cast<std::int64_t>(model_->layers().size());
  parallel::StageCuts cuts_{.ranks = 1, .layers = {{0, all_}}};
};

TEST_F(RepeatedLayersTest, AreNoneOrAllAsAsked) {
  EXPECT_EQ(repeated("none", 0), 0);
  EXPECT_EQ(repeated("full", 0), all_);
  EXPECT_EQ(repeated("auto", 0), 0) << "there is no limit";
}

TEST_F(RepeatedLayersTest, AreTheFewestThatKeepWithinTheLimit) {
  EXPECT_EQ(repeated("auto", (1 + kEstimateError) * total(0) + 1), 0);
  double least = total(0);
  for (std::int64_t count = 1; count <= all_; ++count) least = std::min(least, total(count));
  ASSERT_LT(least, total(0));
  const auto found = repeated("auto", (1 + kEstimateError) * least + 1);
  EXPECT_GT(found, 0);
  EXPECT_LE(total(found), least + 1);
  for (std::int64_t fewer = 0; fewer < found; ++fewer) EXPECT_GT(total(fewer), least + 1) << fewer;
}

TEST_F(RepeatedLayersTest, AreAsManyAsNeedLeastWhereTheEstimateStaysAboveTheLimit) {
  const auto estimate = estimate_memory(kFootprint, *model_, cuts_, 0, kShape, 0);
  const auto found = repeated("auto", estimate.total() - estimate.activations + 1);
  ASSERT_LT(total(found), total(all_)) << "all at once need more than some";
  for (std::int64_t other = 0; other <= all_; ++other) EXPECT_GE(total(other), total(found)) << other;
}

TEST_F(RepeatedLayersTest, CannotHelpWhereParametersAloneAreTooMany) {
  try {
    repeated("auto", 1000);
    ADD_FAILURE() << "a thousand bytes are not enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), "--memory-limit so much");
    EXPECT_TRUE(error.problem().starts_with("parameters, gradients and optimizer of pipeline rank 0 take"));
  }
}

}  // namespace
}  // namespace dtrain::plan
