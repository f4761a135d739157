#include "models/layers/fused/fused_linear.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/fused/product_gradients.hpp"

namespace dtrain::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  /// The values of both parameters are here for the graph's sake.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*weight*/,
                            const at::Tensor& /*bias*/, const at::Tensor& factor, const at::Tensor& shift,
                            const Parameter* weight_of, const Parameter* bias_of) {
    context->save_for_backward({x, factor});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(weight_of);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(bias_of);
    return at::addmm(shift, x, factor.t());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const at::Tensor of_output = gradients[0].contiguous();
    const auto saved = context->get_saved_variables();
    const auto& weight = *reinterpret_cast<const Parameter*>(context->saved_data["weight"].toInt());
    const auto& bias = *reinterpret_cast<const Parameter*>(context->saved_data["bias"].toInt());
    tensor_list results(7);
    if (context->needs_input_grad(0)) results[0] = at::mm(of_output, saved[1]);
    if (context->needs_input_grad(1)) results[1] = weight_gradient(of_output, saved[0], weight);
    if (context->needs_input_grad(2)) results[2] = bias_gradient(of_output, bias);
    return results;
  }
};

}  // namespace

at::Tensor fused_linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  const at::Tensor rows = as_factor(x).reshape({-1, x.size(-1)}).contiguous();
  const at::Tensor y = FusedLinear::apply(rows, weight.value, bias.value, product_factor(weight).contiguous(),
                                          product_factor(bias), &weight, &bias);
  auto sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

}  // namespace dtrain::models
