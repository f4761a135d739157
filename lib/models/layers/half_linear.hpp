#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// Whether half_linear() takes this: a matrix, products in half precision on the CPU, in a pass with
/// gradients. The same whether there is a copy of the weight in half precision (Parameter::half) or not, as
/// where ranks hold shards of layers.
bool fits_half_linear(const at::Tensor& input, const Parameter& weight);

/// x W^T + b in half precision as one node of the graph, whose gradients of weight and bias are in full
/// precision, in their slots where they have one. Of few rows the weight's is a product of floats: to write
/// it twice, in half precision and converted, would take longer. Shapes: `input` [N, in], `weight` [out, in],
/// `bias` [out]. Not differentiable twice. Both parameters must outlive the graph.
at::Tensor half_linear(const at::Tensor& input, Parameter& weight, Parameter& bias);

}  // namespace dtrain::models
