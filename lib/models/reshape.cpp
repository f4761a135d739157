#include "models/reshape.hpp"

#include <ATen/ops/max_pool2d.h>
#include <fmt/format.h>

#include "models/shape.hpp"

namespace dtrain::models {

Tensors Flatten::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  if (input.dim() == 2) return {input};
  return {input.reshape(output_shapes({input.sizes().vec()})[0])};
}

std::vector<Shape> Flatten::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  std::int64_t features = 1;
  for (std::size_t dim = 1; dim < shape.size(); ++dim) features *= shape[dim];
  return {{shape.at(0), features}};
}

Cost Flatten::cost(const std::vector<Shape>& /*inputs*/) const { return {}; }

Tensors MaxPool2d::forward(const Tensors& inputs, const Context& /*context*/) {
  output_shapes({inputs.at(0).sizes().vec()});
  return {at::max_pool2d(inputs[0], extent_, extent_)};
}

std::vector<Shape> MaxPool2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (shape.size() != 4 || shape[2] < extent_ || shape[3] < extent_) {
    throw input_error(name(), fmt::format("[N, C, H, W] with H and W at least {}", extent_), shape);
  }
  return {{shape[0], shape[1], shape[2] / extent_, shape[3] / extent_}};
}

Cost MaxPool2d::cost(const std::vector<Shape>& inputs) const {
  const double elements = element_count(inputs.at(0));
  const double outputs = element_count(output_shapes(inputs)[0]);
  constexpr double kIndexBytes = 8.0;  // LibTorch keeps where each maximum was
  return {
      .flops = elements, .parameter_bytes = 0.0, .activation_bytes = elements * 4.0 + outputs * kIndexBytes};
}

}  // namespace dtrain::models
