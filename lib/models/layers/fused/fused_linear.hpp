#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// x W^T + b over the last dim of `x` [..., in], `weight` [out, in], `bias` [out], in half precision as one
/// node of the graph. Backward gives the gradients of both in float, where they are collected, without
/// rounding or copying them first. For what takes_product_gradients(). Both parameters must outlive the
/// graph. Not differentiable twice.
at::Tensor fused_linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

}  // namespace dtrain::models
