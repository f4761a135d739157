#include "models/layers/large_linear.hpp"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/compute/precision.hpp"

namespace dtrain::models {
namespace {

/// Null: no bias.
struct WeightAndBias {
  Parameter* weight;
  Parameter* bias;
};

class LargeLinear : public torch::autograd::Function<LargeLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const WeightAndBias& parameters) {
    context->save_for_backward({weight.requires_grad() ? input : at::Tensor(), weight});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(parameters.weight);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(parameters.bias);
    return at::linear(input, weight, bias);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    const auto saved = context->get_saved_variables();
    torch::autograd::tensor_list results(4);
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, saved[1]);
    if (context->needs_input_grad(1))
      results[1] = weight_gradient(*parameter(context, "weight"), saved[0], gradient);
    Parameter* const bias = parameter(context, "bias");
    if (bias != nullptr && context->needs_input_grad(2)) {
      at::Tensor of_bias = bias->take_gradient_memory();
      results[2] = at::sum_out(of_bias, gradient, 0);
    }
    return results;
  }

 private:
  // The layer outlives the graph of each step.
  static Parameter* parameter(torch::autograd::AutogradContext* context, const char* name) {
    return reinterpret_cast<Parameter*>(context->saved_data[name].toInt());
  }

  /// Undefined: it comes with the step's last micro-batch.
  static at::Tensor weight_gradient(Parameter& weight, const at::Tensor& input, const at::Tensor& gradient) {
    StepMemory* const step = weight.step_memory();
    if (step == nullptr || !step->holds_back()) {
      at::Tensor result = weight.take_gradient_memory();
      return at::mm_out(result, gradient.t(), input);
    }
    if (!step->add(input, gradient)) return {};
    at::Tensor result = weight.take_gradient_memory();
    return at::mm_out(result, step->output_gradients().t(), step->inputs());
  }
};

}  // namespace

bool fits_large_linear(const at::Tensor& input, const Parameter& weight, StepMemory::Otherwise otherwise) {
  if (input.dim() != 2 || !own_products_take(input, weight.value)) return false;
  const bool is_fastest = otherwise == StepMemory::Otherwise::nothing;
  StepMemory* const step = weight.step_memory();
  if (step == nullptr) return is_fastest;
  const auto elements = input.size(0) * (weight.value.size(0) + weight.value.size(1));
  return step->holds_back(elements, weight.value.numel(), otherwise) || is_fastest;
}

at::Tensor large_linear(const at::Tensor& input, Parameter& weight, Parameter* bias) {
  const auto biases = bias != nullptr ? std::optional(bias->value) : std::nullopt;
  return LargeLinear::apply(input, weight.value, biases, WeightAndBias{&weight, bias});
}

}  // namespace dtrain::models
