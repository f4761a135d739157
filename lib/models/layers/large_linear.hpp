#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// Whether large_linear() serves: the step has several micro-batches, of few rows beside the weight's, and
/// the first of them was too large for small_linear(). The same for all micro-batches of the step.
bool fits_large_linear(const at::Tensor& input, const Parameter& weight);

/// x W^T + b for `input` [rows, in] and `weight` [out, in], whose gradient is made once per step
/// (StepMemory).
at::Tensor large_linear(const at::Tensor& input, Parameter& weight, Parameter& bias);

}  // namespace dtrain::models
