#include "models/layers/batch_norm2d.hpp"

#include <fmt/format.h>

#include "models/shape.hpp"

namespace dtrain::models {

BatchNorm2d::BatchNorm2d(const std::string& name, std::int64_t channels, kernels::Then then, Slicing slicing)
    : Layer(name),
      channels_(channels),
      then_(then),
      place_(BatchNorm::add(name, channels, parameters_, buffers_, slicing)) {}

Tensors BatchNorm2d::forward(const Tensors& inputs, const Context& context) {
  output_shapes({inputs.at(0).sizes().vec()});
  return {batch_norm({.input = inputs[0], .residual = {}, .then = then_}, place_, parameters_, buffers_,
                     context)};
}

std::vector<Shape> BatchNorm2d::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  if (shape.size() != 4 || shape[1] != channels_) {
    throw input_error(name(), fmt::format("[N, {}, H, W]", channels_), shape);
  }
  return {shape};
}

Flow BatchNorm2d::slice(TensorGroup& /*group*/, const Flow& flow) {
  if (!flow.sliced()) return flow;
  place_.slice(flow.part, parameters_, buffers_);
  channels_ = flow.part.size();
  return flow;
}

Cost BatchNorm2d::cost(const std::vector<Shape>& inputs) const {
  constexpr double kOperations = 5.0;  // two sums and their terms, a product and a sum
  const double elements = element_count(inputs.at(0));
  const auto bytes = static_cast<double>(parameters_[0].value.element_size());
  const auto channels = static_cast<double>(channels_);
  const double of_channels = channels * (2.0 * sizeof(double) + 2.0 * bytes);  // moments; scale and shift
  return {.flops = elements * (kOperations + (then_ == kernels::Then::relu ? 1.0 : 0.0)),
          .parameter_bytes = 2.0 * channels * bytes,
          .activation_bytes = elements * bytes + of_channels};
}

}  // namespace dtrain::models
