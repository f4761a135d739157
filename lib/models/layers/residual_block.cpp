#include "models/layers/residual_block.hpp"

#include "models/shape.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {

ResidualBlock::ResidualBlock(const std::string& name, std::int64_t in_channels, std::int64_t out_channels,
                             std::int64_t stride)
    : Layer(name), downsamples_(stride != 1 || in_channels != out_channels) {
  first_ = add_stage(
      "conv1", "bn1",
      {.in_channels = in_channels, .out_channels = out_channels, .kernel = 3, .stride = stride, .padding = 1},
      Slicing::channels_out);
  second_ = add_stage(
      "conv2", "bn2",
      {.in_channels = out_channels, .out_channels = out_channels, .kernel = 3, .stride = 1, .padding = 1},
      Slicing::channels_in);
  if (!downsamples_) return;
  downsample_ = add_stage(
      "downsample.0", "downsample.1",
      {.in_channels = in_channels, .out_channels = out_channels, .kernel = 1, .stride = stride, .padding = 0},
      Slicing::none);
}

ResidualBlock::Stage ResidualBlock::add_stage(const std::string& conv, const std::string& norm,
                                              const Conv2d::Geometry& geometry, Slicing slicing) {
  Stage stage{.geometry = geometry, .weight = parameters_.size(), .norm = {}};
  add_convolution(name() + "." + conv, geometry,
                  {.start = Conv2d::Start::kaiming_fan_out,
                   .bias = Conv2d::Bias::no,
                   .format = kChannelsLast,
                   .slicing = slicing},
                  parameters_);
  const bool sliced_alike = slicing == Slicing::channels_out;
  stage.norm = BatchNorm::add(name() + "." + norm, geometry.out_channels, parameters_, buffers_,
                              sliced_alike ? Slicing::channels_out : Slicing::none);
  return stage;
}

Flow ResidualBlock::slice(TensorGroup& group, const Flow& flow) {
  group_ = &group;
  const Flow inner = slice_convolution(first_.geometry, parameters_[first_.weight], nullptr, group, flow);
  first_.norm.slice(inner.part, parameters_, buffers_);
  return slice_convolution(second_.geometry, parameters_[second_.weight], nullptr, group, inner);
}

at::Tensor ResidualBlock::convolved(const Stage& stage, const at::Tensor& input) {
  Parameter& weight = parameters_[stage.weight];
  const auto slicing = group_ != nullptr ? weight.slicing : Slicing::none;
  const bool enters = slicing == Slicing::channels_out;
  const at::Tensor result = convolve(enters ? group_->enter(input) : input, weight, nullptr, stage.geometry);
  return slicing == Slicing::channels_in ? group_->leave(result) : result;
}

at::Tensor ResidualBlock::run(const Stage& stage, const at::Tensor& input, const at::Tensor& residual,
                              kernels::Then then, const Context& context) {
  return batch_norm({.input = convolved(stage, input), .residual = residual, .then = then}, stage.norm,
                    parameters_, buffers_, context);
}

Tensors ResidualBlock::forward(const Tensors& inputs, const Context& context) {
  using kernels::Then;
  const at::Tensor& input = inputs.at(0);
  output_shapes({input.sizes().vec()});
  const at::Tensor skip = downsamples_ ? run(downsample_, input, {}, Then::nothing, context) : input;
  const at::Tensor inner = run(first_, input, {}, Then::relu, context);
  return {run(second_, inner, skip, Then::relu, context)};
}

std::vector<Shape> ResidualBlock::output_shapes(const std::vector<Shape>& inputs) const {
  return {convolved_shape(name(), second_.geometry, convolved_shape(name(), first_.geometry, inputs.at(0)))};
}

Cost ResidualBlock::cost(const std::vector<Shape>& inputs) const {
  constexpr double kNormOperations = 5.0;
  const Shape inner = convolved_shape(name(), first_.geometry, inputs.at(0));
  const double elements = element_count(inner);
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  Cost total{.flops = elements * (2.0 * kNormOperations + 3.0),  // with two ReLUs and the sum
             .parameter_bytes = 0.0,
             .activation_bytes = elements * 2.0 * bytes,  // what the normalisations give
             .inner_bytes = elements * 2.0 * bytes,
             .products = Cost::Products::of_inputs};
  const auto add = [&](const Stage& stage, const Shape& input) {
    const Cost one = convolution_cost(stage.geometry, Conv2d::Bias::no, input, parameters_[stage.weight]);
    total.flops += one.flops;
    total.parameter_bytes +=
        one.parameter_bytes + 2.0 * static_cast<double>(stage.geometry.out_channels) * bytes;
    total.activation_bytes += one.activation_bytes;
    total.spared_flops += one.spared_flops;
    total.transformed_bytes += one.transformed_bytes;
    total.step_bytes += one.step_bytes;
    total.factors.insert(total.factors.end(), one.factors.begin(), one.factors.end());
    total.columns_bytes = std::max(total.columns_bytes, one.columns_bytes);
    total.workspace_bytes = std::max(total.workspace_bytes, one.workspace_bytes);
    total.entered_bytes += one.entered_bytes;
    total.left_bytes += one.left_bytes;
  };
  add(first_, inputs[0]);
  add(second_, inner);
  if (downsamples_) {
    add(downsample_, inputs[0]);
    total.flops += elements * kNormOperations;
    total.activation_bytes += elements * bytes;
  }
  return total;
}

}  // namespace dtrain::models
