#include "models/compute/direct_pass.hpp"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "models/layer.hpp"

namespace dtrain::models {

void leave_gradient(Parameter& parameter, at::Tensor gradient) {
  at::Tensor& sum = parameter.value.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = std::move(gradient);
  }
  const auto& waits = torch::autograd::impl::post_acc_grad_hooks(parameter.value);
  if (waits != nullptr) (*waits)(parameter.value);
}

bool serves(const at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options) {
  return kept.defined() && kept.sizes() == shape &&
         kept.scalar_type() == c10::typeMetaToScalarType(options.dtype());
}

at::Tensor& kept_memory(at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!serves(kept, shape, options)) kept = at::empty(shape, options);
  return kept;
}

}  // namespace dtrain::models
