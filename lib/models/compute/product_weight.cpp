#include "models/compute/product_weight.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/compute/gradient_place.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/layer.hpp"

namespace dtrain::models {
namespace {

/// The gradient in the parameter's type is written where it is collected, if there is a place for it; a
/// borrowed parameter's goes another way.
class CopyOfWeight : public torch::autograd::Function<CopyOfWeight> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& value,
                            const Parameter* parameter) {
    context->saved_data["type"] = value.scalar_type();
    const bool own = value.is_same(parameter->value);
    context->saved_data["parameter"] = own ? reinterpret_cast<std::int64_t>(parameter) : 0;
    return parameter->half.detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto* const parameter =
        reinterpret_cast<const Parameter*>(context->saved_data["parameter"].toInt());
    const auto type = context->saved_data["type"].toScalarType();
    at::Tensor memory =
        parameter != nullptr && parameter->place != nullptr ? parameter->place->take() : at::Tensor();
    if (!memory.defined()) return {gradients[0].to(type), at::Tensor()};
    return {memory.copy_(gradients[0]), at::Tensor()};
  }
};

}  // namespace

bool copy_counts(const Parameter& parameter) {
  return parameter.half.defined() && own_kernels_are_on() && at::GradMode::is_enabled() &&
         parameter.half.scalar_type() == product_type();
}

at::Tensor product_weight(const at::Tensor& value, const Parameter& parameter) {
  return copy_counts(parameter) ? CopyOfWeight::apply(value, &parameter) : value;
}

at::Tensor product_factor(const Parameter& parameter) {
  return copy_counts(parameter) ? parameter.half : as_factor(parameter.value.detach());
}

}  // namespace dtrain::models
