#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// `result` = a b + `bias` [columns], undefined: without; by the kernels of a GPU (kernels::ProductKernels),
/// which take the fastest algorithm that they find. Returns false, and has done nothing, where there are none
/// for these tensors. Shapes: `a` [rows, depth], `b` [depth, columns], of one type in half precision, each
/// contiguous or the transpose of what is; `result` contiguous, of that type or in float.
bool device_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias = {});

/// The same, by LibTorch's operator where there are no such kernels; all tensors of one type.
at::Tensor half_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

}  // namespace dtrain::models
