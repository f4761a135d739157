#include "models/layers/half_linear.hpp"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

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
    const at::Tensor factor = weight_of->half;
    context->save_for_backward({weight.requires_grad() ? input : at::Tensor(), factor});
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
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, saved[1]);
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
  return copy_counts(weight) && input.is_cpu() && input.dim() == 2 &&
         weight.value.scalar_type() == at::kFloat;
}

at::Tensor half_linear(const at::Tensor& input, Parameter& weight, Parameter& bias) {
  return HalfLinear::apply(as_factor(input), weight.value, bias.value, &weight, &bias);
}

}  // namespace dtrain::models
