#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// result = a b, or result += a b, in float, of factors in float or half precision. A GPU sums and writes
/// floats; elsewhere a product of half precision is rounded to it once before. Shapes: `a` [m, k], `b` [k,
/// n], of one type; `result` [m, n] of type float, contiguous. Not recorded.
void full_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds = false);

}  // namespace dtrain::models
