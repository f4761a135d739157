#include "models/layers/fused_norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

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
  static tensor_list forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, double eps, at::ScalarType type) {
    const auto rows = rows_of(input, eps);
    const at::Tensor normed = at::empty(input.sizes(), input.options().dtype(type).requires_grad(false));
    const auto options = input.options().requires_grad(false);
    const at::Tensor means = at::empty({static_cast<std::int64_t>(rows.rows)}, options);
    const at::Tensor deviations = at::empty_like(means);
    fused_kernels_for(input)->residual_norm(
        nullptr, normed.data_ptr(), *element_of(type), means.data_ptr<float>(), deviations.data_ptr<float>(),
        input.const_data_ptr<float>(), nullptr, kernels::Element::float32, weight.const_data_ptr<float>(),
        bias.const_data_ptr<float>(), rows, computing_stream(input.device()));
    context->save_for_backward({input, weight, means, deviations});
    context->saved_data["eps"] = eps;
    context->set_materialize_grads(false);
    return {input, normed};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &means = saved[2], &deviations = saved[3];
    if (!gradients[1].defined()) return {gradients[0], {}, {}, {}, {}};
    const at::Tensor passed = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor of_normed = gradients[1].contiguous();
    const at::Tensor gradient = at::empty(input.sizes(), means.options());
    const at::Tensor partial = at::empty(
        {static_cast<std::int64_t>(FusedKernels::kPartialRows), 2, input.size(-1)}, means.options());
    fused_kernels_for(input)->residual_norm_gradient(
        gradient.data_ptr<float>(), partial.data_ptr<float>(),
        passed.defined() ? passed.const_data_ptr<float>() : nullptr, of_normed.const_data_ptr(),
        *element_of(of_normed.scalar_type()), input.const_data_ptr<float>(), weight.const_data_ptr<float>(),
        means.const_data_ptr<float>(), deviations.const_data_ptr<float>(),
        rows_of(input, context->saved_data["eps"].toDouble()), computing_stream(input.device()));
    const at::Tensor sums = partial.sum(0);
    return {gradient, sums[0], sums[1], at::Tensor(), at::Tensor()};
  }
};

bool takes_fused_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const auto fits = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  };
  return fused_kernels_are_on() && fits(input) && fits(weight) && fits(bias) && input.numel() > 0 &&
         input.size(-1) <= static_cast<std::int64_t>(FusedKernels::kWidestNorm) &&
         fused_kernels_for(input) != nullptr;
}

}  // namespace

NormedInput normed_input(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                         double eps, at::ScalarType type) {
  if (!takes_fused_norm(input, weight, bias))
    return {input, tapped_layer_norm(input, {input.size(-1)}, weight, bias, eps)};
  const auto results = FusedNorm::apply(input, weight, bias, eps, type);
  return {results[0], results[1]};
}

}  // namespace dtrain::models
