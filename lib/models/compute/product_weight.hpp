#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

struct Parameter;  // models/layer.hpp

/// Whether products here take the parameter's copy in half precision (Parameter::half) in place of its value:
/// own kernels are on (KernelScope), products are in half precision, gradients are recorded, and there is
/// one.
bool copy_counts(const Parameter& parameter);

/// `value`, that of `parameter` or a leaf over the same memory, as products take it. Where the copy counts,
/// that is the copy, whose gradient goes to `value` in its type, into the memory that a GradientPlace offers;
/// `parameter` must outlive the graph. Else `value` itself. Without gradients also `value` itself: the copy
/// is kept for training.
at::Tensor product_weight(const at::Tensor& value, const Parameter& parameter);

/// The same as a number of an operation of dtrain's own, which leaves the gradient itself: the copy, or the
/// value converted. Not recorded.
at::Tensor product_factor(const Parameter& parameter);

}  // namespace dtrain::models
