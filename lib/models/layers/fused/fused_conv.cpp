#include "models/layers/fused/fused_conv.hpp"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/fused/product_gradients.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class FusedConv : public torch::autograd::Function<FusedConv> {
 public:
  /// `factor`: the weight, recorded; `shift`: the bias as the product takes it, whose value is here for the
  /// graph's sake.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& images, const at::Tensor& factor,
                            const at::Tensor& /*bias*/, const at::Tensor& shift, const Parameter* bias_of,
                            std::int64_t stride, std::int64_t padding) {
    context->save_for_backward({images, factor});
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(bias_of);
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::conv2d(images, factor, shift, stride, padding);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor of_output = gradients[0].contiguous(kChannelsLast);
    const auto& bias = *reinterpret_cast<const Parameter*>(context->saved_data["bias"].toInt());
    const std::int64_t stride = context->saved_data["stride"].toInt();
    const std::int64_t padding = context->saved_data["padding"].toInt();
    tensor_list results(7);
    if (context->needs_input_grad(2))
      results[2] = bias_gradient(of_output.permute({0, 2, 3, 1}).reshape({-1, of_output.size(1)}), bias);
    std::tie(results[0], results[1], std::ignore) = at::convolution_backward(
        of_output, saved[0], saved[1], at::OptionalIntArrayRef(), {stride, stride}, {padding, padding},
        {1, 1}, false, {0, 0}, 1, {context->needs_input_grad(0), context->needs_input_grad(1), false});
    return results;
  }
};

}  // namespace

at::Tensor fused_conv(const at::Tensor& images, const Parameter& weight, const Parameter& bias,
                      const Conv2d::Geometry& geometry) {
  return FusedConv::apply(as_factor(images), as_factor(product_weight(weight.value, weight)), bias.value,
                          product_factor(bias), &bias, geometry.stride, geometry.padding);
}

}  // namespace dtrain::models
