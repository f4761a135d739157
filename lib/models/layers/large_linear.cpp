#include "models/layers/large_linear.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/precision.hpp"
#include "models/compute/step_memory.hpp"
#include "models/layers/small_linear.hpp"

namespace dtrain::models {
namespace {

class LargeLinear : public torch::autograd::Function<LargeLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, Parameter* parameter) {
    context->save_for_backward({input});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(parameter);
    return at::linear(input, weight, bias);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    // The layer outlives the graph of each step.
    auto& weight = *reinterpret_cast<Parameter*>(context->saved_data["weight"].toInt());
    torch::autograd::tensor_list results(4);
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, weight.value.detach());
    if (weight.step_memory()->add(context->get_saved_variables()[0], gradient))
      results[1] = weight_gradient(weight);
    results[2] = gradient.sum(0);
    return results;
  }

 private:
  static at::Tensor weight_gradient(Parameter& weight) {
    at::Tensor result = weight.take_gradient_memory();
    const StepMemory& step = *weight.step_memory();
    return at::mm_out(result, step.output_gradients().t(), step.inputs());
  }
};

}  // namespace

bool fits_large_linear(const at::Tensor& input, const Parameter& weight) {
  StepMemory* step = weight.step_memory();
  if (step == nullptr || input.dim() != 2 || !own_products_take(input, weight.value)) return false;
  using Otherwise = StepMemory::Otherwise;
  return step->holds_back(input.size(0) * (weight.value.size(0) + weight.value.size(1)), weight.value.numel(),
                          fits_small_linear(input, weight.value) ? Otherwise::faster : Otherwise::nothing);
}

at::Tensor large_linear(const at::Tensor& input, Parameter& weight, Parameter& bias) {
  return LargeLinear::apply(input, weight.value, bias.value, &weight);
}

}  // namespace dtrain::models
