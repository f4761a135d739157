#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// The parameters of gelu(x W^T + b) V^T + c as products take them: W [inner, width], b [inner], V [width,
/// inner], c [width].
struct PerceptronWeights {
  at::Tensor inner;
  at::Tensor inner_bias;
  at::Tensor outer;
  at::Tensor outer_bias;
};

/// Whether fused_perceptron() takes `x` here: fused kernels are on (KernelScope), products are in half
/// precision, and gradients are wanted.
bool takes_fused_perceptron(const at::Tensor& x);

/// gelu(x W^T + b) V^T + c over the last dim of `x` [..., width], in half precision. The bias and the GELU,
/// and in backward its gradient and the bias's, are part of a product where a GPU's library has it
/// (kernels::ProductKernels); else LibTorch's operators compute the same. GELU is in the form with tanh,
/// which differs from at::gelu() by 5e-4 at most: less than half precision rounds of results around 1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
at::Tensor fused_perceptron(const at::Tensor& x, const PerceptronWeights& weights);

}  // namespace dtrain::models
