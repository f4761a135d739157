#include "models/layers/convolution/conv_transpose2d.hpp"

#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

#include "models/compute/kernel_scope.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/convolution/chwn_conv.hpp"
#include "models/layers/convolution/patch_conv.hpp"
#include "models/shape.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

ConvTranspose2d::ConvTranspose2d(const std::string& name, const Conv2d::Geometry& geometry,
                                 const Conv2d::Style& style)
    : Layer(name), geometry_(geometry), images_(style.images) {
  const auto& g = geometry;
  const auto fan = static_cast<double>(g.out_channels * g.kernel * g.kernel);
  const Initialisation init{Initialisation::Kind::uniform, 1.0 / std::sqrt(fan)};
  const at::Tensor weight =
      at::empty({g.in_channels, g.out_channels, g.kernel, g.kernel}, at::TensorOptions(), style.format);
  parameters_.push_back({name + ".weight", weight.requires_grad_(), init, style.slicing});
  parameters_.push_back({name + ".bias", at::empty({g.out_channels}).requires_grad_(), init,
                         style.slicing == Slicing::channels_out ? style.slicing : Slicing::none});
}

Flow ConvTranspose2d::slice(TensorGroup& group, const Flow& flow) {
  if (parameters_[0].slicing != Slicing::none) group_ = &group;
  return slice_convolution(geometry_, parameters_[0], &parameters_[1], group, flow, 1);
}

Tensors ConvTranspose2d::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  Parameter& bias = parameters_[1];
  if (group_ == nullptr) return {convolved(input, bias)};
  if (parameters_[0].slicing == Slicing::channels_out) return {convolved(group_->enter(input), bias)};
  if (!no_bias_.value.defined()) no_bias_.value = at::zeros_like(bias.value.detach());
  const at::Tensor sum = group_->leave(convolved(input, no_bias_));
  return {sum + bias.value.view({1, -1, 1, 1})};
}

at::Tensor ConvTranspose2d::convolved(const at::Tensor& input, Parameter& bias) {
  if (images_ != Conv2d::Images::as_they_come && fits_chwn_conv(input, parameters_[0].value, geometry_))
    return chwn_conv_transpose(input, parameters_[0], bias, geometry_);
  return convolve_transposed(input, parameters_[0], bias, geometry_);
}

at::Tensor convolve_transposed(const at::Tensor& input, Parameter& weight, Parameter& bias,
                               const Conv2d::Geometry& geometry) {
  if (fits_patch_conv(input, weight.value)) return patch_conv_transpose(input, weight, bias, geometry);
  return at::conv_transpose2d(input, product_weight(weight.value, weight), bias.value, geometry.stride,
                              geometry.padding);
}

std::vector<Shape> ConvTranspose2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (shape.size() != 4 || shape[1] != geometry_.in_channels || geometry_.extent_before(shape[2]) < 1 ||
      geometry_.extent_before(shape[3]) < 1) {
    throw input_error(name(), fmt::format("[N, {}, H, W]", geometry_.in_channels), shape);
  }
  return {{shape[0], geometry_.out_channels, geometry_.extent_before(shape[2]),
           geometry_.extent_before(shape[3])}};
}

Cost ConvTranspose2d::cost(const std::vector<Shape>& inputs) const {
  const double elements = element_count(inputs.at(0));
  const Shape large = output_shapes(inputs)[0];
  const double outputs = element_count(large);
  const bool as_chwn =
      images_ != Conv2d::Images::as_they_come && fits_chwn_conv(inputs.at(0).at(0), geometry_);
  const bool makes_columns = !as_chwn || !own_kernels_are_on();
  const auto fan_out = static_cast<double>(geometry_.out_channels * geometry_.kernel * geometry_.kernel);
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  const auto in = static_cast<double>(geometry_.in_channels);
  const auto out = static_cast<double>(geometry_.out_channels);
  return {.flops = elements * 2.0 * fan_out + outputs,
          .parameter_bytes = (in * fan_out + out) * bytes,
          .activation_bytes = outputs * bytes,
          .workspace_bytes =
              as_chwn ? 0.0 : patch_workspace_bytes(parameters_[0].value, geometry_, large, inputs.at(0)),
          .columns_bytes =
              makes_columns ? columns_of(geometry_, inputs.at(0), geometry_.out_channels) * bytes : 0.0,
          .entered_bytes = parameters_[1].slice != nullptr ? elements * bytes : 0.0,
          .left_bytes = group_ != nullptr && parameters_[1].slice == nullptr ? outputs * bytes : 0.0,
          .products = Cost::Products::of_inputs};
}

}  // namespace dtrain::models
