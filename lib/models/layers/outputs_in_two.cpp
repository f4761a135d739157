#include "models/layers/outputs_in_two.hpp"

#include <ATen/ops/cat.h>

#include <utility>

namespace dtrain::models {

FirstOutputs::FirstOutputs(std::unique_ptr<Layer> part)
    : Layer(part->name() + ", first"), part_(std::move(part)) {}

Tensors FirstOutputs::forward(const Tensors& inputs, const Context& context) {
  return {part_->forward(inputs, context).at(0), inputs.at(0)};
}

std::vector<Shape> FirstOutputs::output_shapes(const std::vector<Shape>& inputs) const {
  return {part_->output_shapes(inputs).at(0), inputs.at(0)};
}

const std::vector<Parameter>& FirstOutputs::parameters() const { return std::as_const(*part_).parameters(); }

OtherOutputs::OtherOutputs(std::unique_ptr<Layer> part)
    : Layer(part->name() + ", others"), part_(std::move(part)) {}

Tensors OtherOutputs::forward(const Tensors& inputs, const Context& context) {
  return {at::cat({inputs.at(0), part_->forward({inputs.at(1)}, context).at(0)}, 1)};
}

std::vector<Shape> OtherOutputs::output_shapes(const std::vector<Shape>& inputs) const {
  auto shape = part_->output_shapes({inputs.at(1)}).at(0);
  shape.at(1) += inputs.at(0).at(1);
  return {shape};
}

Cost OtherOutputs::cost(const std::vector<Shape>& inputs) const {
  Cost cost = part_->cost({inputs.at(1)});
  // What comes in is copied beside the outputs made here.
  const auto made = static_cast<double>(part_->output_shapes({inputs.at(1)}).at(0).at(1));
  cost.activation_bytes *= 1 + static_cast<double>(inputs.at(0).at(1)) / made;
  return cost;
}

const std::vector<Parameter>& OtherOutputs::parameters() const { return std::as_const(*part_).parameters(); }

}  // namespace dtrain::models
