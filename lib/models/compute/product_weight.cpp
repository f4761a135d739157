#include "models/compute/product_weight.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/layer.hpp"

namespace dtrain::models {
namespace {

class CopyOfWeight : public torch::autograd::Function<CopyOfWeight> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& value,
                            const at::Tensor& half) {
    context->saved_data["type"] = value.scalar_type();
    return half.detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    return {gradients[0].to(context->saved_data["type"].toScalarType()), at::Tensor()};
  }
};

}  // namespace

at::Tensor product_weight(const at::Tensor& value, const Parameter& parameter) {
  const bool copied = parameter.half.defined() && fused_kernels_are_on() && at::GradMode::is_enabled() &&
                      parameter.half.scalar_type() == product_type();
  return copied ? CopyOfWeight::apply(value, parameter.half) : value;
}

}  // namespace dtrain::models
