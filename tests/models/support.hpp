#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/model.hpp"

namespace dtrain::models {

inline DatasetFacts images(Shape shape, std::int64_t classes = 10) {
  return {.task = "image_classification", .sample_shape = std::move(shape), .classes = classes};
}

/// A dataset that the model can be built for.
inline DatasetFacts facts_for(const Registration& model) {
  if (model.recipe.dataset == "imdb")
    return {.task = "text_classification", .sample_shape = {20}, .classes = 3, .vocabulary = 50};
  if (model.recipe.dataset == "multi30k") {
    return {
        .task = "translation", .sample_shape = {20}, .classes = 0, .vocabulary = 50, .target_vocabulary = 60};
  }
  if (model.recipe.dataset == "tinyshakespeare")
    return {.task = "language_modelling", .sample_shape = {16}, .classes = 0, .vocabulary = 65};
  if (model.name == "conv_autoencoder") return images({3, 40, 48});  // its sides halve three times
  return images({3, 33, 35});
}

inline std::vector<std::string> model_names() {
  std::vector<std::string> all;
  for (const Registration& model : registry()) all.push_back(model.name);
  return all;
}

/// What the preparation of such a dataset would hand the model: ids where there is a vocabulary.
inline Tensors inputs_for(const Model& model, const DatasetFacts& facts, std::int64_t n) {
  Tensors inputs;
  for (const Shape& shape : model.input_shapes(n, facts.sample_shape)) {
    const auto ids = facts.vocabulary > 0;
    inputs.push_back(ids ? at::randint(1, facts.vocabulary, shape, at::kInt) : at::randn(shape));
  }
  return inputs;
}

inline Tensors run(Model& model, const at::Tensor& input, const Context& context = {}) {
  Tensors values = {input};
  for (auto& layer : model.layers()) values = layer->forward(values, context);
  return values;
}

/// For tests of one layer: it has no loss.
class OneLayer final : public Model {
 public:
  using Model::Model;
  LossSums loss(const Tensors&, const at::Tensor&) const override { return {}; }
};

/// `layer` alone, with values of this type.
inline std::unique_ptr<Model> model_of(std::unique_ptr<Layer> layer, at::ScalarType type) {
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::move(layer));
  auto model = std::make_unique<OneLayer>("one", std::move(layers));
  model->to(type, at::kCPU);
  model->initialise(3);
  return model;
}

}  // namespace dtrain::models
