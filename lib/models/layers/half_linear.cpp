#include "models/layers/half_linear.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"

namespace dtrain::models {
namespace {

/// Up to so many a product of floats takes less time than the conversion of its result: it takes some 8 ps
/// for each row and element more than one in tiles, and to convert an element takes half a nanosecond.
constexpr std::int64_t kFewRows = 64;

class HalfLinear : public torch::autograd::Function<HalfLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, Parameter* weight_of,
                            Parameter* bias_of) {
    const at::Tensor factor = product_factor(*weight_of);
    // What was converted for this is made again: ranks that hold shards of layers have no room for copies.
    context->save_for_backward(
        {weight.requires_grad() ? input : at::Tensor(), copy_counts(*weight_of) ? factor : at::Tensor()});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(weight_of);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(bias_of);
    return at::linear(input, factor, bias.to(factor.scalar_type()));
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor gradient = gradients[0].contiguous();
    const auto saved = context->get_saved_variables();
    // The layer outlives the graph of each step.
    auto& weight = *reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    auto& bias = *reinterpret_cast<Parameter*>(context->saved_data["bias"].toInt());
    torch::autograd::tensor_list results(5);
    if (context->needs_input_grad(0)) {
      const auto factor = saved[1].defined() ? saved[1] : weight.value.detach().to(gradient.scalar_type());
      results[0] = at::mm(gradient, factor);
    }
    if (context->needs_input_grad(1)) results[1] = weight_gradient(gradient, saved[0], weight);
    if (context->needs_input_grad(2)) {
      at::Tensor of_bias = bias.take_gradient_memory();
      results[2] = at::sum_out(of_bias, gradient, 0, false, of_bias.scalar_type());
    }
    return results;
  }

 private:
  static at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, Parameter& weight) {
    at::Tensor result = weight.take_gradient_memory();
    if (gradient.size(0) > kFewRows) return result.copy_(at::mm(gradient.t(), input));
    return at::mm_out(result, in_full(gradient).t(), in_full(input));
  }
};

}  // namespace

bool fits_half_linear(const at::Tensor& input, const Parameter& weight) {
  return product_type() != at::kFloat && own_kernels_are_on() && at::GradMode::is_enabled() &&
         input.is_cpu() && input.dim() == 2 && weight.value.scalar_type() == at::kFloat;
}

at::Tensor half_linear(const at::Tensor& input, Parameter& weight, Parameter& bias) {
  return HalfLinear::apply(as_factor(input), weight.value, bias.value, &weight, &bias);
}

}  // namespace dtrain::models
