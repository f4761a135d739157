#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

// The gradients of y = x W^T + b in half precision for parameters in float: computed in float, and written
// where they are collected (Parameter::take_gradient_memory()). Shapes: `of_output` [n, out], `input` [n,
// in], contiguous.

/// Whether there are kernels for them, where `x` lies: fused ones are on (KernelScope), products are in half
/// precision, gradients are wanted, of all samples together (SampleTap), and of parameters in float.
bool takes_product_gradients(const at::Tensor& x, const Parameter& weight);

/// Of W [out, in].
at::Tensor weight_gradient(const at::Tensor& of_output, const at::Tensor& input, const Parameter& weight);
/// Of b [out].
at::Tensor bias_gradient(const at::Tensor& of_output, const Parameter& bias);

}  // namespace dtrain::models
