#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

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

/// Copies our parameters into a torch::nn module with the same names.
inline void copy_into(torch::nn::Module& module, Model& model) {
  const torch::NoGradGuard no_grad;
  auto theirs = module.named_parameters();
  ASSERT_EQ(theirs.size(), model.parameters().size());
  for (Parameter* parameter : model.parameters()) theirs[parameter->name].copy_(parameter->value);
}

/// Loss sum, outputs and every gradient must agree; `loss` is theirs, computed from `outputs`.
inline void expect_same(Model& model, torch::nn::Module& module, const at::Tensor& outputs,
                        const at::Tensor& their_outputs, const at::Tensor& targets, double tolerance) {
  EXPECT_TRUE(at::allclose(outputs, their_outputs, tolerance, tolerance));
  const LossSums sums = model.loss({outputs}, targets);
  const at::Tensor loss = at::cross_entropy_loss(their_outputs, targets, {}, at::Reduction::Sum);
  EXPECT_NEAR(sums.loss.item<double>(), loss.item<double>(), tolerance * 100);
  sums.loss.backward();
  loss.backward();
  const auto theirs = module.named_parameters();
  for (Parameter* parameter : model.parameters()) {
    EXPECT_TRUE(
        at::allclose(parameter->value.grad(), theirs[parameter->name].grad(), tolerance * 10, tolerance * 10))
        << parameter->name;
  }
}

}  // namespace dtrain::models
