#include "models/layers/fused/fused_perceptron.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"

namespace dtrain::models {
namespace {

using kernels::ProductKernels;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr const char* kTanh = "tanh";  // the form of GELU

const ProductKernels* product_kernels_for(const at::Tensor& x) {
  const auto* const kernels = x.is_cpu() ? nullptr : kernels::device_kernels();
  return kernels != nullptr ? kernels->products() : nullptr;
}

at::Tensor workspace_for(const at::Tensor& x) {
  return at::empty({static_cast<std::int64_t>(ProductKernels::kWorkspaceBytes)},
                   x.options().dtype(at::kByte));
}

kernels::InnerProduct sizes_of(const at::Tensor& x, const at::Tensor& inner) {
  return {static_cast<std::size_t>(x.size(0)), static_cast<std::size_t>(x.size(1)),
          static_cast<std::size_t>(inner.size(0))};
}

struct Inner {
  at::Tensor before;  // the GELU
  at::Tensor out;
};

Inner inner_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (const auto* const kernels = product_kernels_for(x)) {
    const Inner made{at::empty({x.size(0), weight.size(0)}, x.options()),
                     at::empty({x.size(0), weight.size(0)}, x.options())};
    if (kernels->gelu(made.out.data_ptr(), made.before.data_ptr(), x.const_data_ptr(),
                      weight.const_data_ptr(), bias.const_data_ptr(), *element_of(x.scalar_type()),
                      sizes_of(x, weight), workspace_for(x).data_ptr(), computing_stream(x.device())))
      return made;
  }
  const at::Tensor before = at::addmm(bias, x, weight.t());
  return {before, at::gelu(before, kTanh)};
}

struct InnerGradient {
  at::Tensor of_before;
  at::Tensor of_bias;
};

InnerGradient inner_gradient(const at::Tensor& of_output, const at::Tensor& outer, const at::Tensor& before) {
  if (const auto* const kernels = product_kernels_for(before)) {
    const InnerGradient made{at::empty(before.sizes(), before.options()),
                             at::empty({before.size(1)}, before.options())};
    if (kernels->gelu_gradient(
            made.of_before.data_ptr(), made.of_bias.data_ptr(), of_output.const_data_ptr(),
            outer.const_data_ptr(), before.const_data_ptr(), *element_of(before.scalar_type()),
            {static_cast<std::size_t>(before.size(0)), static_cast<std::size_t>(outer.size(0)),
             static_cast<std::size_t>(outer.size(1))},
            workspace_for(before).data_ptr(), computing_stream(before.device())))
      return made;
  }
  const at::Tensor of_before = at::gelu_backward(at::mm(of_output, outer), before, kTanh);
  return {of_before, of_before.sum(0)};
}

class FusedPerceptron : public torch::autograd::Function<FusedPerceptron> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& inner,
                            const at::Tensor& inner_bias, const at::Tensor& outer,
                            const at::Tensor& outer_bias) {
    const auto [before, out] = inner_of(x, inner, inner_bias);
    context->save_for_backward({x, inner, outer, before, out});
    return at::addmm(outer_bias, out, outer.t());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &inner = saved[1], &outer = saved[2], &before = saved[3], &out = saved[4];
    const at::Tensor of_output = gradients[0].contiguous();
    const auto [of_before, of_bias] = inner_gradient(of_output, outer, before);
    return {at::mm(of_before, inner), at::mm(of_before.t(), x), of_bias, at::mm(of_output.t(), out),
            of_output.sum(0)};
  }
};

}  // namespace

bool takes_fused_perceptron(const at::Tensor& x) {
  return fused_kernels_are_on() && product_type() != at::kFloat && at::GradMode::is_enabled() &&
         x.numel() > 0 && (x.is_cpu() || fused_kernels_for(x) != nullptr);
}

at::Tensor fused_perceptron(const at::Tensor& x, const PerceptronWeights& weights) {
  const at::Tensor rows = as_factor(x).reshape({-1, x.size(-1)});
  const auto factor = [](const at::Tensor& tensor) { return as_factor(tensor).contiguous(); };
  const at::Tensor y =
      FusedPerceptron::apply(rows.contiguous(), factor(weights.inner), factor(weights.inner_bias),
                             factor(weights.outer), factor(weights.outer_bias));
  auto sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

}  // namespace dtrain::models
