#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "parallel/memory/memory_meter.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 4;
constexpr std::int64_t kSmall = 16 << 10;  // bytes: below, what autograd keeps besides tensors counts

models::DatasetFacts facts_for(const models::Registration& model) {
  const auto& dataset = model.recipe.dataset;
  if (dataset == "imdb")
    return {.task = "text_classification", .sample_shape = {200}, .classes = 2, .vocabulary = 3000};
  if (dataset == "multi30k") {
    return {.task = "translation",
            .sample_shape = {20},
            .classes = 0,
            .vocabulary = 3000,
            .target_vocabulary = 2000};
  }
  if (dataset == "tinyshakespeare")
    return {.task = "language_modelling", .sample_shape = {256}, .classes = 0, .vocabulary = 65};
  if (dataset == "mnist") return {.task = "image_classification", .sample_shape = {1, 28, 28}, .classes = 10};
  return {.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
}

models::Tensors inputs_for(const models::Model& model, const models::DatasetFacts& facts) {
  models::Tensors inputs;
  for (const auto& shape : model.input_shapes(kSamples, facts.sample_shape)) {
    inputs.push_back(facts.vocabulary > 0 ? at::randint(4, facts.vocabulary / 2, shape, at::kInt)
                                          : at::randn(shape));
  }
  return inputs;
}

/// As training has them, see HalfWeights.
void copy_weights(models::Layer& layer, at::ScalarType half) {
  for (auto& parameter : layer.parameters()) parameter.half = parameter.value.detach().to(half);
}

struct Bytes {
  double kept = 0;
  double said = 0;
};

/// What the layers of a model keep for backward, and what their costs say. Large ones are compared.
Bytes of_model(const models::Registration& registration, std::optional<at::ScalarType> half, double most) {
  auto& meter = MemoryMeter::process();
  const auto facts = facts_for(registration);
  auto model = registration.make(facts, {});
  model->initialise(1);
  auto flowing = inputs_for(*model, facts);
  std::vector<models::Shape> shapes;
  for (const auto& input : flowing) shapes.push_back(input.sizes().vec());
  const auto input_bytes = static_cast<double>(flowing[0].nbytes());
  Bytes all;
  bool is_half = false;
  for (const auto& layer : model->layers()) {
    if (half) copy_weights(*layer, *half);
    const auto before = meter.live();
    auto next = layer->run(flowing, {.step = 1, .half = half});
    auto kept = static_cast<double>(meter.live() - before);
    const auto cost = layer->cost(shapes);
    double said = cost.activation_bytes + cost.step_bytes;
    if (half) {
      double elements = 0;
      for (const auto& input : flowing) elements += static_cast<double>(input.numel());
      const auto mixed = models::mixed_cost(cost, elements, is_half);
      said = mixed.activation_bytes;
      is_half = mixed.gives_half;
      if (next[0].is_floating_point()) {
        EXPECT_EQ(is_half, next[0].scalar_type() == *half) << registration.name << " " << layer->name();
      }
    }
    // Images come in row by row; a first layer that wants their channels last copies them.
    if (layer == model->layers().front()) kept = std::clamp(said, kept - input_bytes, kept);
    all.kept += kept;
    all.said += said;
    if (std::max(kept, said) > kSmall) {
      EXPECT_LE(kept, most * said) << registration.name << " " << layer->name();
      EXPECT_LE(said, most * kept) << registration.name << " " << layer->name();
    }
    shapes = layer->output_shapes(shapes);
    flowing = std::move(next);
  }
  return all;
}

TEST(LayerMemoryTest, ALayersCostSaysWhatItKeepsForBackward) {
  for (const auto& registration : models::registry()) {
    const auto [kept, said] = of_model(registration, std::nullopt, 1.25);
    EXPECT_NEAR(said / kept, 1.0, 0.15) << registration.name;
  }
}

TEST(LayerMemoryTest, AndInMixedPrecision) {
  // Not of the others: LibTorch's pooling keeps indices that costs leave out, and a first product keeps no
  // weight.
  const std::set<std::string> compared = {"vgg11",   "resnet18", "conv_autoencoder", "nbow", "gpt",
                                          "seq2seq", "cnn"};
  for (const auto& registration : models::registry()) {
    if (!compared.contains(registration.name)) continue;
    const auto [kept, said] = of_model(registration, at::kBFloat16, 1.7);
    // Of each attention gpt counts one activation more than it keeps, in place of what its backward makes.
    EXPECT_NEAR(said / kept, 1.0, registration.name == "gpt" ? 0.06 : 0.05) << registration.name;
  }
}

}  // namespace
}  // namespace dtrain::parallel

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  at::set_num_threads(1);
  dtrain::parallel::MemoryMeter::process().install();
  return RUN_ALL_TESTS();
}
