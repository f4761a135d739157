#include "models/layers/fused/fused_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/sample_tap.hpp"

namespace dtrain::models {
namespace {

using kernels::FusedKernels;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

kernels::NormRows rows_of(const at::Tensor& input, double eps) {
  const auto width = input.size(-1);
  return {static_cast<std::size_t>(width == 0 ? 0 : input.numel() / width), static_cast<std::size_t>(width),
          static_cast<float>(eps)};
}

class FusedNorm : public torch::autograd::Function<FusedNorm> {
 public:
  static tensor_list forward(AutogradContext* context, const at::Tensor& input,
                             const std::optional<at::Tensor>& branch, const at::Tensor& weight,
                             const at::Tensor& bias, const NormWeights& weights, double eps,
                             at::ScalarType type) {
    const auto rows = rows_of(input, eps);
    const auto options = input.options().requires_grad(false);
    const at::Tensor normed = at::empty(input.sizes(), options.dtype(type));
    const at::Tensor means = at::empty({static_cast<std::int64_t>(rows.rows)}, options);
    const at::Tensor deviations = at::empty_like(means);
    const at::Tensor sum = branch ? at::empty(input.sizes(), options) : input;
    const auto branch_type = branch ? branch->scalar_type() : at::kFloat;
    fused_kernels_for(input)->residual_norm(
        branch ? sum.data_ptr<float>() : nullptr, normed.data_ptr(), *element_of(type),
        means.data_ptr<float>(), deviations.data_ptr<float>(), input.const_data_ptr<float>(),
        branch ? branch->const_data_ptr() : nullptr, *element_of(branch_type), weight.const_data_ptr<float>(),
        bias.const_data_ptr<float>(), rows, computing_stream(input.device()));
    context->save_for_backward({sum, weight, means, deviations});
    context->saved_data["weight"] = reinterpret_cast<std::int64_t>(weights.weight_of);
    context->saved_data["bias"] = reinterpret_cast<std::int64_t>(weights.bias_of);
    context->saved_data["eps"] = eps;
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["branch_type"] = branch_type;
    context->set_materialize_grads(false);
    return {sum, normed};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &means = saved[2], &deviations = saved[3];
    const bool branch = context->saved_data["branch"].toBool();
    const auto branch_type = context->saved_data["branch_type"].toScalarType();
    if (!gradients[1].defined()) {
      const at::Tensor of_branch = branch ? gradients[0].to(branch_type) : at::Tensor();
      return {gradients[0], of_branch, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor passed = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor of_normed = gradients[1].contiguous();
    const at::Tensor gradient = at::empty(sum.sizes(), means.options());
    const at::Tensor partial =
        at::empty({static_cast<std::int64_t>(FusedKernels::kPartialRows), 2, sum.size(-1)}, means.options());
    at::Tensor of_branch;  // made on the way where it has the norm's type
    if (branch && branch_type == of_normed.scalar_type())
      of_branch = at::empty(sum.sizes(), of_normed.options());
    const auto memory_of = [&](const char* name) {
      const auto* const parameter = reinterpret_cast<const Parameter*>(context->saved_data[name].toInt());
      return parameter != nullptr ? parameter->take_gradient_memory() : at::empty_like(weight);
    };
    at::Tensor of_weight = memory_of("weight");
    at::Tensor of_bias = memory_of("bias");
    fused_kernels_for(sum)->residual_norm_gradient(
        {.of_sum = gradient.data_ptr<float>(),
         .of_branch = of_branch.defined() ? of_branch.data_ptr() : nullptr,
         .of_weight = of_weight.data_ptr<float>(),
         .of_bias = of_bias.data_ptr<float>(),
         .partial = partial.data_ptr<float>()},
        passed.defined() ? passed.const_data_ptr<float>() : nullptr, of_normed.const_data_ptr(),
        *element_of(of_normed.scalar_type()), sum.const_data_ptr<float>(), weight.const_data_ptr<float>(),
        means.const_data_ptr<float>(), deviations.const_data_ptr<float>(),
        rows_of(sum, context->saved_data["eps"].toDouble()), computing_stream(sum.device()));
    if (branch && !of_branch.defined()) of_branch = gradient.to(branch_type);
    return {gradient,     of_branch,    std::move(of_weight), std::move(of_bias),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

bool takes_fused_norm(const Tensors& inputs, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  };
  const at::Tensor& input = inputs.at(0);
  const bool branch_fits =
      inputs.size() == 1 || (inputs[1].is_contiguous() && inputs[1].sizes() == input.sizes() &&
                             element_of(inputs[1].scalar_type()).has_value());
  return fused_kernels_are_on() && fits(input) && branch_fits && fits(weight) && fits(bias) &&
         input.numel() > 0 && input.size(-1) <= static_cast<std::int64_t>(FusedKernels::kWidestNorm) &&
         fused_kernels_for(input) != nullptr;
}

}  // namespace

NormedInput normed_input(const Tensors& inputs, const NormWeights& weights, double eps, at::ScalarType type) {
  const auto& [weight, bias, weight_of, bias_of] = weights;
  const bool pair = inputs.size() > 1;
  if (!takes_fused_norm(inputs, weight, bias)) {
    const at::Tensor input = pair ? inputs[0] + inputs[1] : inputs.at(0);
    return {input, tapped_layer_norm(input, {input.size(-1)}, weight, bias, eps)};
  }
  const auto results = FusedNorm::apply(inputs[0], pair ? std::optional(inputs[1]) : std::nullopt, weight,
                                        bias, weights, eps, type);
  return {results[0], results[1]};
}

}  // namespace dtrain::models
