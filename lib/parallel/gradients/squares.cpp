#include "parallel/gradients/squares.hpp"

#include <ATen/ATen.h>

#include "kernels/device_kernels.hpp"
#include "models/compute/computing_stream.hpp"

namespace dtrain::parallel {
namespace {

using kernels::SumOfSquares;

/// In one pass over them.
std::vector<SumOfSquares> by_own_kernel(const kernels::DeviceKernels& kernels, const at::Tensor& values,
                                        std::span<const Range> parts) {
  const auto bytes = values.options().dtype(at::kByte);
  const at::Tensor scratch = at::empty({static_cast<std::int64_t>(kernels.kScratchBytes)}, bytes);
  const at::Tensor results =
      at::empty({static_cast<std::int64_t>(parts.size() * sizeof(SumOfSquares))}, bytes);
  auto* result = static_cast<SumOfSquares*>(results.data_ptr());
  for (const Range& part : parts) {
    kernels.sum_of_squares_and_nonfinite(
        result++, scratch.data_ptr(), values.const_data_ptr<float>() + part.begin,
        static_cast<std::size_t>(part.size()), models::computing_stream(values.device()));
  }
  const at::Tensor here = results.cpu();
  const auto* const first = static_cast<const SumOfSquares*>(here.const_data_ptr());
  return {first, first + parts.size()};
}

std::vector<SumOfSquares> by_library(const at::Tensor& values, std::span<const Range> parts) {
  std::vector<at::Tensor> numbers;
  for (const Range& part : parts) {
    const auto of_part = values.narrow(0, part.begin, part.size());
    numbers.push_back(of_part.to(at::kDouble).square().sum());
    numbers.push_back(of_part.isfinite().logical_not().sum().to(at::kDouble));
  }
  const at::Tensor here = at::stack(numbers).cpu();
  const auto* number = here.const_data_ptr<double>();
  std::vector<SumOfSquares> squares(parts.size());
  for (auto& [sum, non_finite] : squares) {
    sum = *number++;
    non_finite = static_cast<std::int64_t>(*number++);
  }
  return squares;
}

SumOfSquares on_cpu(const at::Tensor& values, const Range& part) {
  const auto n = static_cast<std::size_t>(part.size());
  return values.scalar_type() == at::kDouble
             ? kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<double>() + part.begin, n)
             : kernels::sum_of_squares_and_nonfinite(values.const_data_ptr<float>() + part.begin, n);
}

}  // namespace

std::vector<SumOfSquares> squares_of(const at::Tensor& values, std::span<const Range> parts) {
  std::vector<SumOfSquares> squares;
  if (parts.empty()) return squares;
  if (!values.is_cpu()) {
    const auto* kernels = values.scalar_type() == at::kFloat ? kernels::device_kernels() : nullptr;
    return kernels != nullptr ? by_own_kernel(*kernels, values, parts) : by_library(values, parts);
  }
  for (const Range& part : parts) squares.push_back(on_cpu(values, part));
  return squares;
}

SumOfSquares squares_of(const at::Tensor& values) {
  const Range all{0, values.numel()};
  return squares_of(values, {&all, 1}).front();
}

}  // namespace dtrain::parallel
