#include "parallel/gradients/squares.hpp"

#include <ATen/ATen.h>

#include <bit>

#include "kernels/device_kernels.hpp"
#include "models/compute/computing_stream.hpp"

namespace dtrain::parallel {
namespace {

using kernels::SumOfSquares;

/// In one pass over them. Counts are whole numbers whose bits lie in the memory of a double.
at::Tensor by_own_kernel(const kernels::DeviceKernels& kernels, const at::Tensor& values,
                         std::span<const Range> parts) {
  const auto bytes = values.options().dtype(at::kByte);
  const at::Tensor scratch = at::empty({static_cast<std::int64_t>(kernels.kScratchBytes)}, bytes);
  static_assert(sizeof(SumOfSquares) == 2 * sizeof(double));
  const at::Tensor results =
      at::empty({static_cast<std::int64_t>(2 * parts.size())}, bytes.dtype(at::kDouble));
  auto* result = static_cast<SumOfSquares*>(results.data_ptr());
  for (const Range& part : parts) {
    kernels.sum_of_squares_and_nonfinite(
        result++, scratch.data_ptr(), values.const_data_ptr<float>() + part.begin,
        static_cast<std::size_t>(part.size()), models::computing_stream(values.device()));
  }
  return results;
}

at::Tensor by_library(const at::Tensor& values, std::span<const Range> parts) {
  std::vector<at::Tensor> numbers;
  for (const Range& part : parts) {
    const auto of_part = values.narrow(0, part.begin, part.size());
    numbers.push_back(of_part.to(at::kDouble).square().sum());
    numbers.push_back(of_part.isfinite().logical_not().sum().to(at::kDouble));
  }
  return at::stack(numbers);
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
  if (!values.is_cpu()) return finish_squares(start_squares(values, parts));
  for (const Range& part : parts) squares.push_back(on_cpu(values, part));
  return squares;
}

StartedSquares start_squares(const at::Tensor& values, std::span<const Range> parts) {
  if (values.is_cpu() || parts.empty()) return {};
  const auto* kernels = values.scalar_type() == at::kFloat ? kernels::device_kernels() : nullptr;
  if (kernels == nullptr) return {by_library(values, parts), false};
  return {by_own_kernel(*kernels, values, parts), true};
}

std::vector<SumOfSquares> finish_squares(const StartedSquares& started) {
  const at::Tensor here = started.numbers.cpu();
  const auto* number = here.const_data_ptr<double>();
  std::vector<SumOfSquares> squares(static_cast<std::size_t>(here.numel() / 2));
  for (auto& [sum, non_finite] : squares) {
    sum = *number++;
    non_finite =
        started.holds_bits ? std::bit_cast<std::int64_t>(*number) : static_cast<std::int64_t>(*number);
    ++number;
  }
  return squares;
}

SumOfSquares squares_of(const at::Tensor& values) {
  const Range all{0, values.numel()};
  return squares_of(values, {&all, 1}).front();
}

}  // namespace dtrain::parallel
