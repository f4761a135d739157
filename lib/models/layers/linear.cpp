#include "models/layers/linear.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/half_linear.hpp"
#include "models/layers/large_linear.hpp"
#include "models/layers/small_linear.hpp"
#include "models/shape.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

using Otherwise = StepMemory::Otherwise;

Linear::Linear(const std::string& name, std::int64_t in_features, std::int64_t out_features, Slicing slicing)
    : Layer(name), in_features_(in_features), out_features_(out_features) {
  const Initialisation init{Initialisation::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(in_features))};
  parameters_.push_back(
      {name + ".weight", at::empty({out_features, in_features}).requires_grad_(), init, slicing});
  // Cut with the outputs; where the inputs are cut every rank holds all of it.
  const Slicing of_bias = slicing == Slicing::column ? slicing : Slicing::none;
  parameters_.push_back({name + ".bias", at::empty({out_features}).requires_grad_(), init, of_bias});
}

Flow Linear::slice(TensorGroup& group, const Flow& flow) {
  Parameter& weight = parameters_[0];
  require((weight.slicing == Slicing::row) == flow.sliced(), "a sliced layer takes what another one gives",
          {.subject = fmt::format("layer {}", name())});
  if (weight.slicing == Slicing::none) return flow;
  group_ = &group;
  if (weight.slicing == Slicing::column) {
    const Range part = part_of(out_features_, group.rank(), group.size());
    const Flow outputs{.whole = out_features_, .part = part};
    hold_slice(weight, 0, part);
    hold_slice(parameters_[1], 0, part);
    out_features_ = part.size();
    return outputs;
  }
  const std::int64_t each = in_features_ / flow.whole;  // pixels of a channel
  hold_slice(weight, 1, flow.part, {out_features_, flow.whole, each});
  in_features_ = flow.part.size() * each;
  return {};
}

std::unique_ptr<Layer> Linear::cut_outputs(std::int64_t kept) {
  auto others = std::make_unique<Linear>(name(), in_features_, out_features_ - kept);
  out_features_ = kept;
  others->parameters_ = cut_parameters(parameters_, kept);
  return others;
}

at::Tensor linear_product(const at::Tensor& input, Parameter& weight, Parameter& bias) {
  if (gives_factors(input, weight)) return small_linear(input.contiguous(), weight, bias);
  const bool is_small = fits_small_linear(input, weight.value);
  if (fits_large_linear(input, weight, is_small ? Otherwise::faster : Otherwise::nothing))
    return large_linear(input, weight, &bias);
  if (is_small) return small_linear(input, weight, bias);
  if (fits_half_linear(input, weight)) return half_linear(input, weight, bias);
  return at::linear(input, product_weight(weight.value, weight), bias.value);
}

std::vector<Cost::Factors> linear_factors(const Shape& input, const at::Tensor& weight, Otherwise of_small) {
  if (input.size() != 2) return {};
  if (of_small == Otherwise::faster && has_small_linear_size(input[0], weight)) return {};
  return {{.elements = static_cast<double>(input[0] * (weight.size(0) + weight.size(1))),
           .weight = static_cast<double>(weight.numel())}};
}

Tensors Linear::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  if (input.dim() == 0 || input.size(-1) != in_features_) {
    throw input_error(name(), fmt::format("[..., {}]", in_features_), input.sizes());
  }
  Parameter& weight = parameters_[0];
  Parameter& bias = parameters_[1];
  if (group_ == nullptr) return {linear_product(input, weight, bias)};
  if (weight.slicing == Slicing::column) return {linear_product(group_->enter(input), weight, bias)};
  const at::Tensor part = fits_large_linear(input, weight, Otherwise::nothing)
                              ? large_linear(input, weight, nullptr)
                              : at::linear(input, product_weight(weight.value, weight));
  return {group_->leave(part) + bias.value};
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
  const bool by_rows = group_ != nullptr && parameters_[0].slicing == Slicing::row;
  const auto factors =
      linear_factors(inputs.at(0), parameters_[0].value, by_rows ? Otherwise::nothing : Otherwise::faster);
  return {.flops = rows * (2.0 * in * out + out),
          .parameter_bytes = (in * out + out) * bytes,
          .activation_bytes = rows * out * bytes,
          .entered_bytes = group_ != nullptr && parameters_[1].slice != nullptr ? rows * in * bytes : 0.0,
          .left_bytes = group_ != nullptr && parameters_[1].slice == nullptr ? rows * out * bytes : 0.0,
          .products = Cost::Products::of_inputs,
          .factors = factors};
}

}  // namespace dtrain::models
