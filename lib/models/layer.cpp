#include "models/layer.hpp"

#include <ATen/ops/empty.h>

#include "models/compute/precision.hpp"

namespace dtrain::models {

at::Tensor Parameter::take_gradient_memory(at::MemoryFormat format) {
  at::Tensor slot = take_gradient_slot();
  if (slot.defined() && slot.is_contiguous(format)) return slot;
  return at::empty(value.sizes(), value.options().memory_format(format));
}

Tensors Layer::run(const Tensors& inputs, const Context& context) {
  const ProductScope products(context.half);
  const KernelScope kernels(context.kernels);
  return forward(inputs, context);
}

Flow Layer::slice(TensorGroup& /*group*/, const Flow& flow) { return flow; }

}  // namespace dtrain::models
