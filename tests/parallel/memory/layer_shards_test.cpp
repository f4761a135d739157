#include "parallel/memory/layer_shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/error.hpp"
#include "parallel/gradients/plain_gradient.hpp"
#include "parallel/gradients/sharded_sums.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

/// A small model whose parameters and gradients are in shards.
class LayerShardsTest : public testing::Test {
 protected:
  LayerShardsTest()
      : parameters_(*model_, at::empty({0}, at::kDouble), FlatParameters::Values::elsewhere),
        layers_(*model_, parameters_, job_.data(),
                [this](const models::Parameter* parameter) { sums_->passed(parameter); }),
        sums_(std::make_unique<ShardedSums>(
            parameters_, job_.data(), job_.queue(),
            ShardedSums::Config{.micro_batches = kPieces, .buckets = layers_.shared_out()})) {}

  Range all_layers() const { return {0, std::ssize(model_->layers())}; }
  std::int64_t ranks() { return job_.data().size(); }

  void expect_no_memory() const {
    for (const auto* parameter : model_->parameters())
      EXPECT_EQ(parameter->value.storage().nbytes(), 0U) << parameter->name;
  }

  JobOfTest job_;
  std::unique_ptr<models::Model> model_ = small_model();
  FlatParameters parameters_;
  LayerShards layers_;
  std::unique_ptr<ShardedSums> sums_;
};

TEST_F(LayerShardsTest, GradientsAreThoseOfWholeWeightsThoughRanksHaveUnevenWork) {
  const auto expected = plain_gradient(kSamples);
  const auto batch = small_batch(kSamples);
  const auto mine = part_of(kPieces, job_.rank(), ranks());
  for (const std::int64_t repeated : {std::int64_t{0}, std::int64_t{2}, all_layers().size()}) {
    const SegmentWalk walk(*model_, all_layers(), each_layer(all_layers(), repeated), &layers_);
    sums_->begin_step(static_cast<int>(mine.size()));
    for (auto k = mine.begin; k < mine.end; ++k) {
      const auto part = part_of(kSamples, k, kPieces);
      forward_and_back(*model_, walk, batch.inputs.narrow(0, part.begin, part.size()),
                       batch.targets.narrow(0, part.begin, part.size()));
    }
    for (auto k = mine.size(); k < (kPieces + ranks() - 1) / ranks(); ++k) {
      walk.idle_forward();
      walk.idle_back();
    }
    sums_->finish();
    expect_shards_of(expected, *sums_, job_.data());
    expect_no_memory();
  }
}

TEST_F(LayerShardsTest, TheShardsAreTheModelsValues) {
  const auto whole = small_model();
  expect_no_memory();
  EXPECT_EQ(layers_.held().size(), sums_->update_parts().size());
  std::int64_t held = 0;
  for (const Range& part : layers_.held()) held += part.size();
  EXPECT_EQ(parameters_.values().numel(), held);
  const auto layers = static_cast<std::size_t>(all_layers().size());
  const at::NoGradGuard no_grad;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    layers_.open(layer);
    auto& found = model_->layers()[layer]->parameters();
    const auto& expected = whole->layers()[layer]->parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i].value, expected[i].value.to(at::kDouble))) << expected[i].name;
      found[i].value.detach().fill_(3);
    }
    layers_.close(layer);
    expect_no_memory();
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    layers_.bring(static_cast<std::int64_t>(layer), {});
    for (const auto& parameter : model_->layers()[layer]->parameters())
      EXPECT_TRUE(parameter.value.eq(3).all().item<bool>()) << parameter.name;
    layers_.drop(static_cast<std::int64_t>(layer), LayerWeights::Pass::forward);
  }
}

TEST_F(LayerShardsTest, ALayerHasMemoryWhileItComputesAndTheNextOneFollows) {
  using Pass = LayerWeights::Pass;
  const auto bytes_of = [this](std::int64_t layer) {
    std::size_t bytes = 0;
    for (const auto& parameter : model_->layers()[static_cast<std::size_t>(layer)]->parameters())
      bytes = std::max(bytes, parameter.value.storage().nbytes());
    return bytes;
  };
  std::vector<std::int64_t> with_weights;
  for (auto layer = all_layers().begin; layer < all_layers().end; ++layer) {
    if (!model_->layers()[static_cast<std::size_t>(layer)]->parameters().empty())
      with_weights.push_back(layer);
  }
  ASSERT_GE(with_weights.size(), 3U);
  const auto [first, second, third] = std::array{with_weights[0], with_weights[1], with_weights[2]};
  layers_.bring(first, second);
  EXPECT_GT(bytes_of(first), 0U);
  EXPECT_GT(bytes_of(second), 0U);
  EXPECT_EQ(bytes_of(third), 0U);
  layers_.drop(first, Pass::forward);
  EXPECT_EQ(bytes_of(first), 0U);
  layers_.bring(third, {});  // another one than was announced
  EXPECT_EQ(bytes_of(second), 0U);
  layers_.drop(third, Pass::forward);
  layers_.bring(second, second);
  layers_.drop(second, Pass::forward);
  EXPECT_GT(bytes_of(second), 0U) << "it is the next one";
  layers_.bring(second, {});
  layers_.drop(second, Pass::forward);
  expect_no_memory();
}

TEST(LayerShardsOfRanksTest, RanksThatStartWithOtherValuesAreRefused) {
  JobOfTest job;
  if (job.data().size() == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  auto model = small_model();
  {
    const at::NoGradGuard no_grad;
    if (job.rank() == 1) model->parameters().front()->value.add_(1e-6);
  }
  FlatParameters parameters(*model, at::empty({0}), FlatParameters::Values::elsewhere);
  EXPECT_THROW(LayerShards(*model, parameters, job.data(), [](const models::Parameter*) {}), Error);
}

TEST(LayerShardsStartTest, ShapesGetTheValuesThatAWholeModelStartsWith) {
  constexpr std::uint64_t kSeed = 7;
  JobOfTest job;
  const auto options = at::TensorOptions().dtype(at::kDouble);
  std::vector<at::Tensor> shards;
  for (const bool has_values : {true, false}) {
    const auto model = small_model();
    if (has_values) {
      model->initialise(kSeed);
    } else {
      model->leave_shapes();
      model->fill(kSeed);
      for (const auto* parameter : model->parameters()) EXPECT_TRUE(parameter->value.is_meta());
    }
    FlatParameters parameters(*model, at::empty({0}, options), FlatParameters::Values::elsewhere);
    const LayerShards layers(
        *model, parameters, job.data(), [](const models::Parameter*) {}, kSeed);
    shards.push_back(parameters.values().clone());
  }
  EXPECT_GT(shards[0].abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(shards[0], shards[1]));
}

}  // namespace
}  // namespace dtrain::parallel
