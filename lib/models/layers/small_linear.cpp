#include "models/layers/small_linear.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/small_gemm.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_factors.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kLargestInput = 1 << 16;   // elements: half of a second-level cache as float
constexpr std::int64_t kLargestWeight = 1 << 19;  // elements; beyond, packing pays

std::size_t extent(const at::Tensor& tensor, std::int64_t dim) {
  return static_cast<std::size_t>(tensor.size(dim));
}

template <class T>
void multiply_with_weight(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias) {
  kernels::multiply_transposed(output.data_ptr<T>(), input.const_data_ptr<T>(), weight.const_data_ptr<T>(),
                               bias.const_data_ptr<T>(),
                               {extent(input, 0), extent(weight, 0), extent(weight, 1)});
}

template <class T>
at::Tensor forward_as(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor output = at::empty({input.size(0), weight.size(0)}, input.options());
  multiply_with_weight<T>(output, input, weight, bias);
  return output;
}

/// dX = dY W
template <class T>
void write_input_gradient(const at::Tensor& result, const at::Tensor& gradient, const at::Tensor& weight) {
  kernels::multiply(result.data_ptr<T>(), gradient.const_data_ptr<T>(), extent(weight, 0), 1,
                    weight.const_data_ptr<T>(), {extent(gradient, 0), extent(weight, 1), extent(weight, 0)});
}

template <class T>
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& weight) {
  at::Tensor result = at::empty({gradient.size(0), weight.size(1)}, gradient.options());
  write_input_gradient<T>(result, gradient, weight);
  return result;
}

/// dW = dY^T X
template <class T>
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, Parameter& weight) {
  at::Tensor result = weight.take_gradient_memory();
  kernels::multiply(result.data_ptr<T>(), gradient.const_data_ptr<T>(), 1, extent(result, 0),
                    input.const_data_ptr<T>(), {extent(result, 0), extent(result, 1), extent(gradient, 0)});
  return result;
}

/// db = column sums of dY
template <class T>
at::Tensor bias_gradient(const at::Tensor& gradient, Parameter& bias) {
  at::Tensor result = bias.take_gradient_memory();
  kernels::column_sums(result.data_ptr<T>(), gradient.const_data_ptr<T>(), extent(gradient, 0),
                       extent(gradient, 1));
  return result;
}

/// The layer's parameters as a node of the graph keeps them. The layer outlives the graph of each step.
struct Parameters {
  Parameter* weight;
  Parameter* bias;
};

class SmallLinear : public torch::autograd::Function<SmallLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, const Parameters& parameters) {
    // A user's network may write to what a frozen layer has read.
    const bool trains = weight.requires_grad() || parameters.weight->factors() != nullptr;
    context->save_for_backward({trains ? input : at::Tensor(), weight});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(parameters.weight);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(parameters.bias);
    return input.scalar_type() == at::kDouble ? forward_as<double>(input, weight, bias)
                                              : forward_as<float>(input, weight, bias);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor gradient = gradients[0].contiguous();
    return gradient.scalar_type() == at::kDouble ? backward_as<double>(context, gradient)
                                                 : backward_as<float>(context, gradient);
  }

 private:
  template <class T>
  static torch::autograd::tensor_list backward_as(torch::autograd::AutogradContext* context,
                                                  const at::Tensor& gradient) {
    const auto saved = context->get_saved_variables();
    torch::autograd::tensor_list results(4);
    if (context->needs_input_grad(0)) results[0] = input_gradient<T>(gradient, saved[1]);
    Parameter& weight = parameter(context, "weight");
    if (ProductFactors* factors = weight.factors()) {
      *factors = {saved[0], gradient};
      return results;
    }
    if (context->needs_input_grad(1)) results[1] = weight_gradient<T>(gradient, saved[0], weight);
    if (context->needs_input_grad(2)) results[2] = bias_gradient<T>(gradient, parameter(context, "bias"));
    return results;
  }

  static Parameter& parameter(torch::autograd::AutogradContext* context, const char* name) {
    return *reinterpret_cast<Parameter*>(context->saved_data[name].toInt());
  }
};

class DirectSmallLinear final : public DirectPass {
 public:
  DirectSmallLinear(Parameter& weight, Parameter& bias) : weight_(weight), bias_(bias) {}

  bool fits(std::int64_t samples, std::size_t micro_batches) const override {
    if (weight_.factors() != nullptr) return true;
    const at::Tensor& weight = weight_.value;
    // Of several micro-batches the layer may make one product (StepMemory).
    return micro_batches == 1 && weight.is_contiguous() && samples * weight.size(1) <= kLargestInput &&
           weight.numel() <= kLargestWeight;
  }

  at::Tensor forward(const at::Tensor& input) override {
    input_ = input.contiguous();
    return is_double() ? forward_of<double>() : forward_of<float>();
  }

  at::Tensor backward(const at::Tensor& gradient, bool wanted) override {
    return is_double() ? backward_of<double>(gradient, wanted) : backward_of<float>(gradient, wanted);
  }

 private:
  bool is_double() const { return input_.scalar_type() == at::kDouble; }

  template <class T>
  at::Tensor forward_of() {
    kept_memory(output_, {input_.size(0), weight_.value.size(0)}, input_.options());
    multiply_with_weight<T>(output_, input_, weight_.value, bias_.value);
    return output_;
  }

  template <class T>
  at::Tensor backward_of(const at::Tensor& gradient, bool wanted) {
    if (auto* const factors = weight_.factors()) {
      *factors = {input_, gradient};
    } else {
      leave_gradient(weight_, weight_gradient<T>(gradient, input_, weight_));
      leave_gradient(bias_, bias_gradient<T>(gradient, bias_));
    }
    if (!wanted) return {};
    kept_memory(input_gradient_, input_.sizes(), input_.options());
    write_input_gradient<T>(input_gradient_, gradient, weight_.value);
    return input_gradient_;
  }

  Parameter& weight_;
  Parameter& bias_;
  at::Tensor input_;
  at::Tensor output_;
  at::Tensor input_gradient_;
};

}  // namespace

bool fits_small_linear(const at::Tensor& input, const at::Tensor& weight) {
  return input.dim() == 2 && has_small_linear_size(input.size(0), weight) &&
         own_products_take(input, weight) && input.is_contiguous() && weight.is_contiguous();
}

bool has_small_linear_size(std::int64_t rows, const at::Tensor& weight) {
  return kernels::has_small_gemm() && at::get_num_threads() == 1 && rows * weight.size(1) <= kLargestInput &&
         weight.numel() <= kLargestWeight;
}

bool gives_factors(const at::Tensor& input, const Parameter& weight) {
  return weight.factors() != nullptr && at::GradMode::is_enabled() && input.dim() == 2;
}

std::unique_ptr<DirectPass> direct_small_linear(Parameter& weight, Parameter& bias) {
  return std::make_unique<DirectSmallLinear>(weight, bias);
}

at::Tensor small_linear(const at::Tensor& input, Parameter& weight, Parameter& bias) {
  return SmallLinear::apply(input, weight.value, bias.value, Parameters{&weight, &bias});
}

}  // namespace dtrain::models
