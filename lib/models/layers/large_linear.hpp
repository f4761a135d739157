#pragma once

#include <ATen/core/Tensor.h>

#include "models/compute/step_memory.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// Whether large_linear() serves: matrices of floats or doubles in the CPU's memory, and products in their
/// type. `otherwise`: the caller may have a faster way for this micro-batch; in a step of several ones the
/// first decides for all of them.
bool fits_large_linear(const at::Tensor& input, const Parameter& weight, StepMemory::Otherwise otherwise);

/// x W^T + b as at::linear() has it, for `input` [rows, in] and `weight` [out, in]; `bias` [out], or null.
/// Its gradients are written where they are collected (Parameter::take_gradient_memory()). The weight's is
/// made once per step where the step has several micro-batches, of few rows beside the weight's (StepMemory).
/// Parameters must outlive the graph. Not differentiable twice.
at::Tensor large_linear(const at::Tensor& input, Parameter& weight, Parameter* bias);

}  // namespace dtrain::models
