#include "models/layers/convolution/conv2d.hpp"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/compute/kernel_scope.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/layers/convolution/patch_conv.hpp"
#include "models/layers/convolution/winograd_conv.hpp"
#include "models/layers/fused/fused_conv.hpp"
#include "models/layers/fused/product_gradients.hpp"
#include "models/shape.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {
Conv2d::Conv2d(const std::string& name, const Geometry& geometry, const Style& style)
    : Layer(name), geometry_(geometry), images_(style.images) {
  add_convolution(name, geometry, style, parameters_);
}

Tensors Conv2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  Parameter& weight = parameters_[0];
  Parameter* bias = parameters_.size() > 1 ? &parameters_[1] : nullptr;
  if (group_ == nullptr) return {convolved(input, bias)};
  if (weight.slicing == Slicing::channels_out) return {convolved(group_->enter(input), bias)};
  const at::Tensor sum = group_->leave(convolved(input, nullptr));
  return {bias != nullptr ? sum + bias->value.view({1, -1, 1, 1}) : sum};
}

at::Tensor Conv2d::convolved(const at::Tensor& input, Parameter* bias) {
  Parameter& weight = parameters_[0];
  if (images_ != Images::as_they_come && fits_chwn_conv(input, weight.value, geometry_))
    return chwn_conv(input, weight, bias, geometry_);
  return convolve(input, weight, bias, geometry_);
}

Flow Conv2d::slice(TensorGroup& group, const Flow& flow) {
  if (parameters_[0].slicing != Slicing::none) group_ = &group;
  return slice_convolution(geometry_, parameters_[0], parameters_.size() > 1 ? &parameters_[1] : nullptr,
                           group, flow);
}

std::int64_t Conv2d::own_outputs() const {
  return images_ == Images::as_they_come && group_ == nullptr ? geometry_.out_channels : 0;
}

std::unique_ptr<Layer> Conv2d::cut_outputs(std::int64_t kept) {
  auto others = std::make_unique<Conv2d>(name(), geometry_);
  others->geometry_.out_channels -= kept;
  geometry_.out_channels = kept;
  others->parameters_ = cut_parameters(parameters_, kept);
  return others;
}

std::vector<Shape> Conv2d::output_shapes(const std::vector<Shape>& inputs) const {
  return {convolved_shape(name(), geometry_, inputs.at(0))};
}

Cost Conv2d::cost(const std::vector<Shape>& inputs) const {
  const Shape& input = inputs.at(0);
  Cost cost =
      convolution_cost(geometry_, parameters_.size() > 1 ? Bias::yes : Bias::no, input, parameters_[0]);
  if (images_ == Images::made_chwn) {
    cost.layout_bytes = element_count(input) * static_cast<double>(parameters_[0].value.element_size());
    cost.activation_bytes += cost.layout_bytes;
  }
  if (images_ != Images::as_they_come && fits_chwn_conv(input.at(0), geometry_)) {
    cost.workspace_bytes = 0;
    if (own_kernels_are_on()) cost.columns_bytes = 0;
  }
  return cost;
}

std::int64_t Conv2d::Geometry::extent_after(std::int64_t extent) const {
  return (extent + 2 * padding - kernel) / stride + 1;
}

std::int64_t Conv2d::Geometry::extent_before(std::int64_t extent) const {
  return (extent - 1) * stride - 2 * padding + kernel;
}

void add_convolution(const std::string& name, const Conv2d::Geometry& geometry, const Conv2d::Style& style,
                     std::vector<Parameter>& parameters) {
  using Kind = Initialisation::Kind;
  const auto& g = geometry;
  const auto window = static_cast<double>(g.kernel * g.kernel);
  const Initialisation uniform{Kind::uniform, 1.0 / std::sqrt(static_cast<double>(g.in_channels) * window)};
  const Initialisation normal{Kind::normal, std::sqrt(2.0 / (static_cast<double>(g.out_channels) * window))};
  const bool torch = style.start == Conv2d::Start::torch;
  const at::Tensor weight =
      at::empty({g.out_channels, g.in_channels, g.kernel, g.kernel}, at::TensorOptions(), style.format);
  parameters.push_back({name + ".weight", weight.requires_grad_(), torch ? uniform : normal, style.slicing});
  if (style.bias == Conv2d::Bias::no) return;
  // Cut with the outputs; where the inputs are cut each rank holds all of it and one adds it.
  const Slicing slicing = style.slicing == Slicing::channels_out ? Slicing::channels_out : Slicing::none;
  parameters.push_back({name + ".bias", at::empty({g.out_channels}).requires_grad_(),
                        torch ? uniform : Initialisation{Kind::zero}, slicing});
}

Shape convolved_shape(const std::string& layer, const Conv2d::Geometry& geometry, const Shape& input) {
  const std::int64_t smallest = std::max<std::int64_t>(1, geometry.kernel - 2 * geometry.padding);
  if (input.size() != 4 || input[1] != geometry.in_channels || input[2] < smallest || input[3] < smallest) {
    throw input_error(
        layer, fmt::format("[N, {}, H, W] with H and W at least {}", geometry.in_channels, smallest), input);
  }
  return {input[0], geometry.out_channels, geometry.extent_after(input[2]), geometry.extent_after(input[3])};
}

Flow slice_convolution(Conv2d::Geometry& geometry, Parameter& weight, Parameter* bias,
                       const TensorGroup& group, const Flow& flow, std::int64_t out_dim) {
  require((weight.slicing == Slicing::channels_in) == flow.sliced(),
          "a sliced convolution takes what another one gives", {.subject = weight.name});
  if (weight.slicing == Slicing::none) return flow;
  if (weight.slicing == Slicing::channels_in) {
    hold_slice(weight, 1 - out_dim, flow.part);
    geometry.in_channels = flow.part.size();
    return {};
  }
  const Range part = part_of(geometry.out_channels, group.rank(), group.size());
  const Flow outputs{.whole = geometry.out_channels, .part = part};
  hold_slice(weight, out_dim, part);
  if (bias != nullptr) hold_slice(*bias, 0, part);
  geometry.out_channels = part.size();
  return outputs;
}

double columns_of(const Conv2d::Geometry& geometry, const Shape& small, std::int64_t channels) {
  const bool are_pixels = geometry.kernel == 1 && geometry.stride == 1 && geometry.padding == 0;
  const auto window = static_cast<double>(channels * geometry.kernel * geometry.kernel);
  return are_pixels ? 0.0 : static_cast<double>(small.at(0) * small.at(2) * small.at(3)) * window;
}

Cost convolution_cost(const Conv2d::Geometry& geometry, Conv2d::Bias bias, const Shape& input,
                      const Parameter& parameter) {
  const Shape output = convolved_shape(parameter.name, geometry, input);
  const double outputs = element_count(output);
  const auto fan_in = static_cast<double>(geometry.in_channels * geometry.kernel * geometry.kernel);
  const auto bytes = static_cast<double>(parameter.value.element_size());
  const auto channels = static_cast<double>(geometry.out_channels);
  const double biased = bias == Conv2d::Bias::yes ? 1.0 : 0.0;
  const double flops = outputs * (2.0 * fan_in + biased);
  const double transformed = winograd_weight_bytes(parameter.value, geometry, input.at(2), input.at(3));
  const double spared = transformed > 0 ? flops * (1.0 - winograd_share(input.at(2), input.at(3))) : 0.0;
  const bool sliced = parameter.slicing != Slicing::none && parameter.slice != nullptr;
  std::vector<Cost::Factors> factors;
  if (transformed > 0)
    factors.push_back({element_count(input) + outputs, static_cast<double>(parameter.value.numel())});
  return {.flops = flops,
          .parameter_bytes = channels * (fan_in + biased) * bytes,
          .activation_bytes = outputs * bytes,
          .spared_flops = spared,
          .transformed_bytes = transformed,
          .step_bytes = winograd_bytes(parameter.value, geometry, input.at(2), input.at(3)),
          .workspace_bytes = transformed > 0
                                 ? winograd_workspace_bytes(parameter.value, geometry, input)
                                 : patch_workspace_bytes(parameter.value, geometry, input, output),
          .columns_bytes = transformed > 0 && own_kernels_are_on()
                               ? 0.0
                               : columns_of(geometry, output, geometry.in_channels) * bytes,
          .entered_bytes =
              sliced && parameter.slicing == Slicing::channels_out ? element_count(input) * bytes : 0.0,
          .left_bytes = sliced && parameter.slicing == Slicing::channels_in ? outputs * bytes : 0.0,
          .products = Cost::Products::of_inputs,
          .factors = std::move(factors)};
}

at::Tensor convolve(const at::Tensor& input, Parameter& weight, Parameter* bias,
                    const Conv2d::Geometry& geometry) {
  if (fits_winograd(input, weight.value, geometry)) return winograd_conv(input, weight, bias);
  if (fits_patch_conv(input, weight.value)) return patch_conv(input, weight, bias, geometry);
  if (fits_half_patch_conv(input, weight.value)) return half_patch_conv(input, weight, bias, geometry);
  if (bias != nullptr && takes_product_gradients(input, weight))
    return fused_conv(input, weight, *bias, geometry);
  const at::Tensor factor = product_weight(weight.value, weight);
  const auto biases = bias != nullptr ? std::optional(bias->value) : std::nullopt;
  return at::conv2d(input, factor, biases, geometry.stride, geometry.padding);
}

}  // namespace dtrain::models
