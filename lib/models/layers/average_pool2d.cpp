#include "models/layers/average_pool2d.hpp"

#include <ATen/ops/adaptive_avg_pool2d.h>

#include "models/shape.hpp"

namespace dtrain::models {

Tensors AveragePool2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  if (input.size(2) == extent_ && input.size(3) == extent_) return {input};
  return {at::adaptive_avg_pool2d(input, {extent_, extent_})};
}

std::vector<Shape> AveragePool2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (shape.size() != 4) throw input_error(name(), "[N, C, H, W]", shape);
  return {{shape[0], shape[1], extent_, extent_}};
}

Cost AveragePool2d::cost(const std::vector<Shape>& inputs) const {
  return {.flops = element_count(inputs.at(0))};  // backward needs the shape only
}

}  // namespace dtrain::models
