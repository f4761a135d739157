#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// What a residual branch begins with.
struct NormedInput {
  at::Tensor input;  ///< As it came, or its two terms' sum: the branch is added to it.
  at::Tensor normed;
};

/// The weight and bias [width] of a norm, with the parameters whose values they are, to which backward writes
/// where their gradients are collected; null: it does not know.
struct NormWeights {
  const at::Tensor& weight;
  const at::Tensor& bias;
  const Parameter* weight_of = nullptr;
  const Parameter* bias_of = nullptr;
};

/// A layer norm over the last dim of the input, fp32 [..., width]. `inputs`: the
/// input, or two terms of it, of which the second may be in half precision (Layer::takes_pairs()). Where
/// fused kernels are on (KernelScope) and take it, the result is of `type`, fp32 or half precision, the terms
/// are added up in the same pass, and backward adds up the gradients of both uses of the input in one; else
/// LibTorch's operators do it, and the norm gives its own type.
NormedInput normed_input(const Tensors& inputs, const NormWeights& weights, double eps, at::ScalarType type);

}  // namespace dtrain::models
