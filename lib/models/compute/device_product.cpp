#include "models/compute/device_product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "kernels/device_kernels.hpp"
#include "models/compute/computing_stream.hpp"
#include "models/compute/element_type.hpp"

namespace dtrain::models {

bool device_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const auto* const device = a.is_cpu() ? nullptr : kernels::device_kernels();
  const auto* const products = device != nullptr ? device->products() : nullptr;
  const auto type = element_of(a.scalar_type());
  const bool one_type = b.scalar_type() == a.scalar_type() &&
                        (!bias.defined() || (bias.scalar_type() == a.scalar_type() && bias.is_contiguous()));
  const bool transposes_a = !a.is_contiguous();
  const bool transposes_b = !b.is_contiguous();
  const bool lies_well = (!transposes_a || a.t().is_contiguous()) &&
                         (!transposes_b || b.t().is_contiguous()) && result.is_contiguous();
  if (products == nullptr || !type || !one_type || !lies_well) return false;
  const at::Tensor workspace = at::empty(
      {static_cast<std::int64_t>(kernels::ProductKernels::kWorkspaceBytes)}, a.options().dtype(at::kByte));
  return products->multiply(result.data_ptr(), a.const_data_ptr(), b.const_data_ptr(),
                            bias.defined() ? bias.const_data_ptr() : nullptr, *type,
                            {.rows = static_cast<std::size_t>(a.size(0)),
                             .columns = static_cast<std::size_t>(b.size(1)),
                             .depth = static_cast<std::size_t>(a.size(1)),
                             .transposes_a = transposes_a,
                             .transposes_b = transposes_b,
                             .in_float = result.scalar_type() == at::kFloat},
                            workspace.data_ptr(), computing_stream(a.device()));
}

at::Tensor half_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (!a.is_cpu()) {
    at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options().requires_grad(false));
    if (device_product(result, a, b, bias)) return result;
  }
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

}  // namespace dtrain::models
