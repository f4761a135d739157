#include "models/linear.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <cmath>

#include "models/shape.hpp"
#include "models/small_linear.hpp"

namespace dtrain::models {

Linear::Linear(const std::string& name, std::int64_t in_features, std::int64_t out_features, Slicing slicing)
    : Layer(name), in_features_(in_features), out_features_(out_features) {
  const Initialisation init{Initialisation::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(in_features))};
  parameters_.push_back(
      {name + ".weight", at::empty({out_features, in_features}).requires_grad_(), init, slicing});
  parameters_.push_back({name + ".bias", at::empty({out_features}).requires_grad_(), init, slicing});
}

Tensors Linear::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  if (input.dim() == 0 || input.size(-1) != in_features_) {
    throw input_error(name(), fmt::format("[..., {}]", in_features_), input.sizes());
  }
  Parameter& weight = parameters_[0];
  Parameter& bias = parameters_[1];
  return {fits_small_linear(input, weight.value) ? small_linear(input, weight, bias)
                                                 : at::linear(input, weight.value, bias.value)};
}

std::vector<Shape> Linear::output_shapes(const std::vector<Shape>& inputs) const {
  Shape shape = inputs.at(0);
  if (shape.empty() || shape.back() != in_features_) {
    throw input_error(name(), fmt::format("[..., {}]", in_features_), shape);
  }
  shape.back() = out_features_;
  return {shape};
}

Cost Linear::cost(const std::vector<Shape>& inputs) const {
  const double rows = element_count(inputs.at(0)) / static_cast<double>(in_features_);
  const auto in = static_cast<double>(in_features_);
  const auto out = static_cast<double>(out_features_);
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  return {.flops = rows * (2.0 * in * out + out),
          .parameter_bytes = (in * out + out) * bytes,
          .activation_bytes = rows * in * bytes};
}

}  // namespace dtrain::models
