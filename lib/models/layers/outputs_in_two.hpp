#pragma once

#include <memory>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// A layer in two, each with a part of its outputs and the weights that they are made with: so two stages of
/// a pipeline can share a layer that is too large for either. Nothing is computed twice; the inputs travel on
/// with the first outputs.

/// [n, ...] -> the first outputs, and the inputs.
class FirstOutputs final : public Layer {
 public:
  explicit FirstOutputs(std::unique_ptr<Layer> part);

  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override { return part_->cost(inputs); }
  std::vector<Parameter>& parameters() override { return part_->parameters(); }
  const std::vector<Parameter>& parameters() const override;

 private:
  std::unique_ptr<Layer> part_;
};

/// What FirstOutputs gives -> all outputs, along dim 1.
class OtherOutputs final : public Layer {
 public:
  explicit OtherOutputs(std::unique_ptr<Layer> part);

  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  std::vector<Parameter>& parameters() override { return part_->parameters(); }
  const std::vector<Parameter>& parameters() const override;

 private:
  std::unique_ptr<Layer> part_;
};

}  // namespace dtrain::models
