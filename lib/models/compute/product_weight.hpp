#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

struct Parameter;  // models/layer.hpp

/// `value`, that of `parameter` or a leaf over the same memory, as products take it. Where fused kernels are
/// on (KernelScope), products are in half precision and the parameter has a copy in it (Parameter::half),
/// that is the copy, whose gradient goes to `value` in its type, into the memory that a GradientPlace offers;
/// `parameter` must outlive the graph. Else `value` itself. Without gradients also `value` itself: the copy
/// is kept for training.
at::Tensor product_weight(const at::Tensor& value, const Parameter& parameter);

}  // namespace dtrain::models
