#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// What a residual branch begins with.
struct NormedInput {
  at::Tensor input;  ///< As it came: the branch is added to it.
  at::Tensor normed;
};

/// A layer norm over the last dim of `input`, fp32 [..., width]; `weight` and `bias` [width]. Where fused
/// kernels are on (KernelScope) and take it, its result is of `type`, fp32 or half precision, and backward
/// adds up the gradients of both uses of the input in the same pass; else LibTorch's operator gives its own
/// type.
NormedInput normed_input(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                         double eps, at::ScalarType type);

}  // namespace dtrain::models
