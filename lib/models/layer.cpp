#include "models/layer.hpp"

#include <ATen/ops/empty.h>

#include "models/compute/gradient_place.hpp"
#include "models/compute/precision.hpp"

namespace dtrain::models {

at::Tensor Parameter::take_gradient_memory(at::MemoryFormat format) {
  at::Tensor offered = place != nullptr ? place->take() : at::Tensor();
  if (offered.defined() && offered.is_contiguous(format)) return offered;
  return at::empty(value.sizes(), value.options().memory_format(format));
}

StepMemory* Parameter::step_memory() const { return place != nullptr ? place->step_memory() : nullptr; }

Tensors Layer::run(const Tensors& inputs, const Context& context) {
  const ProductScope products(context.half);
  const KernelScope kernels(context.kernels);
  return forward(inputs, context);
}

Flow Layer::slice(TensorGroup& /*group*/, const Flow& flow) { return flow; }

}  // namespace dtrain::models
