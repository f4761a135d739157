#include "models/compute/full_product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace dtrain::models {

void full_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const bool half = a.scalar_type() != at::kFloat;
  if (half && !a.is_cuda()) {
    const at::Tensor rounded = at::mm(a, b);
    adds ? result.add_(rounded) : result.copy_(rounded);
  } else if (half) {
    adds ? at::addmm_out(result, result, a, b, at::kFloat) : at::mm_out(result, a, b, at::kFloat);
  } else {
    adds ? result.addmm_(a, b) : at::mm_out(result, a, b);
  }
}

}  // namespace dtrain::models
