#include "models/conv2d.hpp"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>

#include "models/shape.hpp"

namespace dtrain::models {

Conv2d::Conv2d(const std::string& name, const Geometry& geometry) : Layer(name), geometry_(geometry) {
  const auto& g = geometry_;
  const auto fan_in = static_cast<double>(g.in_channels * g.kernel * g.kernel);
  const Initialisation init{Initialisation::Kind::uniform, 1.0 / std::sqrt(fan_in)};
  const at::Tensor weight = at::empty({g.out_channels, g.in_channels, g.kernel, g.kernel});
  parameters_.push_back({name + ".weight", weight.requires_grad_(), init, Slicing::none});
  parameters_.push_back({name + ".bias", at::empty({g.out_channels}).requires_grad_(), init, Slicing::none});
}

Tensors Conv2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  return {at::conv2d(input, parameters_[0].value, parameters_[1].value, geometry_.stride, geometry_.padding)};
}

std::int64_t Conv2d::extent_after(std::int64_t extent) const {
  return (extent + 2 * geometry_.padding - geometry_.kernel) / geometry_.stride + 1;
}

std::vector<Shape> Conv2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  const std::int64_t smallest = geometry_.kernel - 2 * geometry_.padding;
  if (shape.size() != 4 || shape[1] != geometry_.in_channels || shape[2] < smallest || shape[3] < smallest) {
    throw input_error(name(),
                      fmt::format("[N, {}, H, W] with H and W at least {}", geometry_.in_channels, smallest),
                      shape);
  }
  return {{shape[0], geometry_.out_channels, extent_after(shape[2]), extent_after(shape[3])}};
}

Cost Conv2d::cost(const std::vector<Shape>& inputs) const {
  const double outputs = element_count(output_shapes(inputs)[0]);
  const auto fan_in = static_cast<double>(geometry_.in_channels * geometry_.kernel * geometry_.kernel);
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  const auto channels = static_cast<double>(geometry_.out_channels);
  return {.flops = outputs * (2.0 * fan_in + 1.0),
          .parameter_bytes = channels * (fan_in + 1.0) * bytes,
          .activation_bytes = element_count(inputs[0]) * bytes};
}

}  // namespace dtrain::models
