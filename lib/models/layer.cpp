#include "models/layer.hpp"

#include <ATen/ops/empty.h>

#include "core/error.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/compute/precision.hpp"

namespace dtrain::models {

at::Tensor Parameter::take_gradient_memory(at::MemoryFormat format) const {
  at::Tensor offered = place != nullptr ? place->take() : at::Tensor();
  if (offered.defined() && offered.is_contiguous(format)) return offered;
  return at::empty(value.sizes(), value.options().memory_format(format));
}

StepMemory* Parameter::step_memory() const { return place != nullptr ? place->step_memory() : nullptr; }

ProductFactors* Parameter::factors() const { return place != nullptr ? place->factors() : nullptr; }

MixedCost mixed_cost(const Cost& cost, double input_elements, bool takes_half) {
  constexpr double kHalf = 0.5;  // of what float takes
  if (cost.products == Cost::Products::none) {
    const double flowing = cost.activation_bytes - cost.inside_bytes;
    return {.activation_bytes = cost.inside_bytes + flowing * (takes_half ? kHalf : 1.0),
            .gives_half = takes_half};
  }
  const bool converts = cost.products == Cost::Products::of_inputs && !takes_half;
  const double full = cost.full_bytes + cost.inside_bytes;
  const double halved = cost.activation_bytes - full - cost.layout_bytes;
  return {.activation_bytes = full + kHalf * halved + (converts ? 2.0 * input_elements : 0.0),
          .weight_bytes = kHalf * (cost.parameter_bytes - cost.inside_parameter_bytes),
          .gives_half = cost.full_bytes == 0};
}

Tensors Layer::run(const Tensors& inputs, const Context& context) {
  const ProductScope products(context.half);
  const KernelScope kernels(context.kernels);
  return forward(inputs, context);
}

std::unique_ptr<Layer> Layer::cut_outputs(std::int64_t /*kept*/) {
  throw Error("has no outputs with weights of their own",
              {.subject = name_, .advice = "cut the model between two layers"});
}

Flow Layer::slice(TensorGroup& /*group*/, const Flow& flow) { return flow; }

}  // namespace dtrain::models
