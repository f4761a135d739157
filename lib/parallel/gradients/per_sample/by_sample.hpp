#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::parallel {

/// Sums of squares over all dims but the first, in double: [n, ...] -> [n].
at::Tensor squares_by_sample(const at::Tensor& values);

/// values[i] * factors[i]: [n, ...], [n] -> [n, ...].
at::Tensor weighted(const at::Tensor& values, const at::Tensor& factors);

/// Adds to `squares`, double [n], of each sample the squared norm of the sum over t of left[t]^T right[t]:
/// [n, T, rows], [n, T, columns]. That is the sum over all pairs of rows of (left[t] left[t']) (right[t]
/// right[t']), without the gradient. Rows that cancel leave a small difference of large numbers, which in
/// single precision may be anything, also below 0: all is computed in double.
void add_squares_by_pairs(const at::Tensor& left, const at::Tensor& right, at::Tensor squares);

/// A bound, squared, of what single precision may add to each sample's sum over t of left[t]^T right[t], from
/// squares_by_sample() of both: double [n]. Each product is rounded by a relative 2^-24, and the lengths of
/// all products add up to at most |left| |right|, by Cauchy and Schwarz.
///
/// It belongs to the squared norm wherever the weighted sum over samples is computed from left and right
/// again. A gradient whose rows cancel may be shorter than its own rounding, and a factor of 1 would let that
/// rounding pass unbounded. It also covers what double precision leaves of add_squares_by_pairs(): some
/// 1e-16 |left|^2 |right|^2. Where nothing cancels it changes a norm by less than 1e-9 of it.
at::Tensor squares_of_rounding(const at::Tensor& of_left, const at::Tensor& of_right);

/// Rows of samples in any order, packed, one behind the other and padded by zeros: [rows, ...] ->
/// [n, T, ...], T being the largest number of rows of a sample. `samples`: int64 [rows], whose each is.
at::Tensor padded_by_sample(const at::Tensor& rows, const at::Tensor& samples, std::int64_t n);

}  // namespace dtrain::parallel
