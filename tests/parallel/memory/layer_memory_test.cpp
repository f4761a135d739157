#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(LayerMemoryTest, ALayersCostSaysWhatItKeepsForBackward) {
  auto& meter = MemoryMeter::process();
  for (const auto& registration : models::registry()) {
    const auto facts = facts_for(registration);
    auto model = registration.make(facts, {});
    model->initialise(1);
    auto flowing = inputs_for(*model, facts);
    std::vector<models::Shape> shapes;
    for (const auto& input : flowing) shapes.push_back(input.sizes().vec());
    const auto input_bytes = static_cast<double>(flowing[0].nbytes());
    double all_kept = 0;
    double all_said = 0;
    for (const auto& layer : model->layers()) {
      const auto before = meter.live();
      auto next = layer->forward(flowing, {.step = 1});
      auto kept = static_cast<double>(meter.live() - before);
      const double said = layer->cost(shapes).activation_bytes + layer->cost(shapes).step_bytes;
      // Images come in row by row; a first layer that wants their channels last copies them.
      if (layer == model->layers().front()) kept = std::clamp(said, kept - input_bytes, kept);
      all_kept += kept;
      all_said += said;
      RecordProperty(layer->name(), fmt::format("{} {}", kept, said));
      if (std::max(kept, said) > kSmall) {
        EXPECT_LE(kept, 1.25 * said) << registration.name << " " << layer->name();
        EXPECT_LE(said, 1.25 * kept) << registration.name << " " << layer->name();
      }
      shapes = layer->output_shapes(shapes);
      flowing = std::move(next);
    }
    EXPECT_NEAR(all_said / all_kept, 1.0, 0.15) << registration.name;
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
