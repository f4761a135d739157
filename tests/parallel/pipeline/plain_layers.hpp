#pragma once

#include <ATen/ops/linear.h>

#include <vector>

#include "models/borrowed_parameter.hpp"
#include "models/model.hpp"

namespace dtrain::parallel {

/// A linear layer with the weight of a layer before.
class Borrower final : public models::Layer {
 public:
  explicit Borrower(models::Layer& owner) : Layer("borrower"), use_(owner.parameters().at(0)) {}
  std::vector<models::BorrowedParameter*> borrowed() override { return {&use_}; }
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {at::linear(inputs.at(0), use_.value())};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {.flops = 1}; }

 private:
  models::BorrowedParameter use_;
};

/// Layers without a loss of their own.
class PlainLayers final : public models::Model {
 public:
  using Model::Model;
  models::LossSums loss(const models::Tensors&, const at::Tensor&) const override { return {}; }
};

}  // namespace dtrain::parallel
