#include "models/layers/flatten.hpp"

#include "models/layers/convolution/chwn_conv.hpp"
#include "models/shape.hpp"

namespace dtrain::models {

Tensors Flatten::forward(const Tensors& inputs, const Context& /*context*/) {
  const at::Tensor& input = inputs.at(0);
  if (input.dim() == 2) return {input};
  return {(is_chwn(input) ? as_nchw(input) : input).reshape(output_shapes({input.sizes().vec()})[0])};
}

std::vector<Shape> Flatten::output_shapes(const std::vector<Shape>& inputs) const {
  const Shape& shape = inputs.at(0);
  std::int64_t features = 1;
  for (std::size_t dim = 1; dim < shape.size(); ++dim) features *= shape[dim];
  return {{shape.at(0), features}};
}

Cost Flatten::cost(const std::vector<Shape>& inputs) const {
  // Images lie with their channels last; where there is one channel or pixel, that is no difference.
  const Shape& shape = inputs.at(0);
  const bool copies = shape.size() == 4 && shape[1] > 1 && shape[2] * shape[3] > 1;
  return {.activation_bytes = copies ? element_count(shape) * 4.0 : 0.0};
}

}  // namespace dtrain::models
