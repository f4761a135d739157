#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::parallel {

/// Sums of squares over all dims but the first, in double: [n, ...] -> [n].
at::Tensor squares_by_sample(const at::Tensor& values);

/// values[i] * factors[i]: [n, ...], [n] -> [n, ...].
at::Tensor weighted(const at::Tensor& values, const at::Tensor& factors);

/// Rows of samples in any order, packed, one behind the other and padded by zeros: [rows, ...] ->
/// [n, T, ...], T being the largest number of rows of a sample. `samples`: int64 [rows], whose each is.
at::Tensor padded_by_sample(const at::Tensor& rows, const at::Tensor& samples, std::int64_t n);

}  // namespace dtrain::parallel
