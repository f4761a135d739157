#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// Where backward leaves what the gradients of a product's weight and bias are made from, in place of the
/// gradients: of one micro-batch, dW = dY^T X, and db is the sum over the rows of dY. Both are dense.
struct ProductFactors {
  at::Tensor input;            ///< X [n, in]
  at::Tensor output_gradient;  ///< dY [n, out]
};

}  // namespace dtrain::models
