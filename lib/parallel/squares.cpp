#include "parallel/squares.hpp"

#include <ATen/ATen.h>

#include "kernels/device_kernels.hpp"
#include "models/computing_stream.hpp"

namespace dtrain::parallel {
namespace {

/// In one pass over them.
kernels::SumOfSquares by_own_kernel(const kernels::DeviceKernels& kernels, const at::Tensor& values) {
  const auto bytes = values.options().dtype(at::kByte);
  const at::Tensor scratch = at::empty({static_cast<std::int64_t>(kernels.kScratchBytes)}, bytes);
  const at::Tensor result = at::empty({static_cast<std::int64_t>(sizeof(kernels::SumOfSquares))}, bytes);
  kernels.sum_of_squares_and_nonfinite(static_cast<kernels::SumOfSquares*>(result.data_ptr()),
                                       scratch.data_ptr(), values.const_data_ptr<float>(),
                                       static_cast<std::size_t>(values.numel()),
                                       models::computing_stream(values.device()));
  const at::Tensor here = result.cpu();
  return *static_cast<const kernels::SumOfSquares*>(here.const_data_ptr());
}

kernels::SumOfSquares by_library(const at::Tensor& values) {
  const auto finite = values.isfinite().sum();
  const auto sum = values.to(at::kDouble).square().sum();
  return {.sum = sum.item<double>(), .non_finite = values.numel() - finite.item<std::int64_t>()};
}

}  // namespace

kernels::SumOfSquares squares_of(const at::Tensor& values) {
  const auto n = static_cast<std::size_t>(values.numel());
  if (!values.is_cpu()) {
    const auto* kernels = values.scalar_type() == at::kFloat ? kernels::device_kernels() : nullptr;
    return kernels != nullptr ? by_own_kernel(*kernels, values) : by_library(values);
  }
  return values.scalar_type() == at::kDouble
             ? kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<double>(), n)
             : kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<float>(), n);
}

}  // namespace dtrain::parallel
