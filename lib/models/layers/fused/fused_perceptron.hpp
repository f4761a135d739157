#pragma once

#include <ATen/core/Tensor.h>

#include "models/layer.hpp"

namespace dtrain::models {

/// The parameters of gelu(x W^T + b) V^T + c: W [inner, width], b [inner], V [width, inner], c [width], in
/// float. They must outlive the graph.
struct PerceptronWeights {
  const Parameter& inner;
  const Parameter& inner_bias;
  const Parameter& outer;
  const Parameter& outer_bias;
};

/// gelu(x W^T + b) V^T + c over the last dim of `x` [..., width], in half precision, for what
/// takes_product_gradients(): backward gives those of the parameters as fused_linear() does. The bias and the
/// GELU, and in backward its gradient and the bias's, are part of a product where a GPU's library has it
/// (kernels::ProductKernels); else LibTorch's operators compute the same. GELU is in the form with tanh,
/// which differs from at::gelu() by 5e-4 at most: less than half precision rounds of results around 1.
/// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
at::Tensor fused_perceptron(const at::Tensor& x, const PerceptronWeights& weights);

}  // namespace dtrain::models
