#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dtrain::models {

/// Numbers behind the coefficient of determination, four for each of the `targets` of a sample: squared
/// errors, targets, their squares, their count.
std::size_t r_squared_sum_count(std::int64_t targets);

/// What a batch adds to them, in double. Shapes: [n, targets] in any form, as many elements in `outputs` as
/// in `wanted`.
std::vector<double> r_squared_sums(const at::Tensor& outputs, const at::Tensor& wanted,
                                   std::int64_t targets = 1);

/// R2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2: 1 for a perfect model, 0 for one that always says
/// the mean; NaN where a target does not vary. Of several targets the mean of theirs.
double r_squared(std::span<const double> sums);

}  // namespace dtrain::models
