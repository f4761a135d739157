#include "models/layers/activation.hpp"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "models/shape.hpp"

namespace dtrain::models {

const std::vector<std::string>& function_names() {
  static const std::vector<std::string> kNames = {"relu", "tanh", "gelu", "sigmoid"};
  return kNames;
}

Function function_of(const std::string& name) {
  const auto& names = function_names();
  const auto place = std::ranges::find(names, name);
  if (place == names.end()) {
    throw usage_error(fmt::format("there is no activation {}", name), "--model-option activation",
                      fmt::format("use one of {}", fmt::join(names, ", ")));
  }
  return static_cast<Function>(place - names.begin());
}

Tensors Activation::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  const bool somebody_elses = input.requires_grad() && input.is_leaf();
  if (function_ == Function::gelu) return {at::gelu(input)};
  at::Tensor output = input;
  if (overwrite_ == Overwrite::input && !somebody_elses) {
    switch (function_) {
      case Function::relu:
        return {at::relu_(output)};
      case Function::tanh:
        return {at::tanh_(output)};
      default:
        return {at::sigmoid_(output)};
    }
  }
  switch (function_) {
    case Function::relu:
      return {at::relu(input)};
    case Function::tanh:
      return {at::tanh(input)};
    default:
      return {at::sigmoid(input)};
  }
}

Cost Activation::cost(const std::vector<Shape>& inputs) const {
  const double elements = element_count(inputs.at(0));
  const bool overwrites = function_ != Function::gelu && overwrite_ == Overwrite::input;
  return {.flops = elements, .parameter_bytes = 0.0, .activation_bytes = overwrites ? 0.0 : elements * 4.0};
}

}  // namespace dtrain::models
