#include "models/layer.hpp"

#include "models/compute/precision.hpp"

namespace dtrain::models {

Tensors Layer::run(const Tensors& inputs, const Context& context) {
  const ProductScope products(context.half);
  const KernelScope kernels(context.kernels);
  return forward(inputs, context);
}

Flow Layer::slice(TensorGroup& /*group*/, const Flow& flow) { return flow; }

}  // namespace dtrain::models
