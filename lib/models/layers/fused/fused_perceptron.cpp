#include "models/layers/fused/fused_perceptron.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/product_weight.hpp"
#include "models/layers/fused/product_gradients.hpp"

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

InnerGradient inner_gradient(const at::Tensor& of_output, const at::Tensor& outer, const at::Tensor& before,
                             const Parameter& bias) {
  if (const auto* const kernels = product_kernels_for(before)) {
    const kernels::InnerProduct of{static_cast<std::size_t>(before.size(0)),
                                   static_cast<std::size_t>(outer.size(0)),
                                   static_cast<std::size_t>(outer.size(1))};
    const InnerGradient made{at::empty(before.sizes(), before.options()), bias.take_gradient_memory()};
    if (kernels->gelu_gradient(made.of_before.data_ptr(), made.of_bias.data_ptr<float>(),
                               of_output.const_data_ptr(), outer.const_data_ptr(), before.const_data_ptr(),
                               *element_of(before.scalar_type()), of, workspace_for(before).data_ptr(),
                               computing_stream(before.device())))
      return made;
  }
  const at::Tensor of_before = at::gelu_backward(at::mm(of_output, outer), before, kTanh);
  return {of_before, bias_gradient(of_before, bias)};
}

/// The parameters as products take them.
struct Factors {
  at::Tensor inner, inner_bias, outer, outer_bias;
};

class FusedPerceptron : public torch::autograd::Function<FusedPerceptron> {
 public:
  /// The parameters' values are here for the graph's sake.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*inner*/,
                            const at::Tensor& /*inner_bias*/, const at::Tensor& /*outer*/,
                            const at::Tensor& /*outer_bias*/, const Factors& factors,
                            const PerceptronWeights& weights) {
    const auto [before, out] = inner_of(x, factors.inner, factors.inner_bias);
    context->save_for_backward({x, factors.inner, factors.outer, before, out});
    const auto keep = [&](const char* name, const Parameter& parameter) {
      context->saved_data[name] = reinterpret_cast<std::int64_t>(&parameter);
    };
    keep("inner", weights.inner);
    keep("inner_bias", weights.inner_bias);
    keep("outer", weights.outer);
    keep("outer_bias", weights.outer_bias);
    return at::addmm(factors.outer_bias, out, factors.outer.t());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &inner = saved[1], &outer = saved[2], &before = saved[3], &out = saved[4];
    const auto parameter = [&](const char* name) -> const Parameter& {
      return *reinterpret_cast<const Parameter*>(context->saved_data[name].toInt());
    };
    const at::Tensor of_output = gradients[0].contiguous();
    const auto [of_before, of_bias] = inner_gradient(of_output, outer, before, parameter("inner_bias"));
    return {at::mm(of_before, inner),
            weight_gradient(of_before, x, parameter("inner")),
            of_bias,
            weight_gradient(of_output, out, parameter("outer")),
            bias_gradient(of_output, parameter("outer_bias")),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor fused_perceptron(const at::Tensor& x, const PerceptronWeights& weights) {
  const at::Tensor rows = as_factor(x).reshape({-1, x.size(-1)}).contiguous();
  const auto factor = [](const Parameter& parameter) { return product_factor(parameter).contiguous(); };
  const Factors factors{factor(weights.inner), factor(weights.inner_bias), factor(weights.outer),
                        factor(weights.outer_bias)};
  const at::Tensor y =
      FusedPerceptron::apply(rows, weights.inner.value, weights.inner_bias.value, weights.outer.value,
                             weights.outer_bias.value, factors, weights);
  auto sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

}  // namespace dtrain::models
