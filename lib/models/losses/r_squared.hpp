#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

namespace dtrain::models {

/// Numbers behind the coefficient of determination: squared errors, targets, their squares, their count.
inline constexpr std::size_t kRSquaredSums = 4;

/// What a batch adds to them, in double. Shapes: as many elements in `outputs` as in `targets`.
std::vector<double> r_squared_sums(const at::Tensor& outputs, const at::Tensor& targets);

/// R2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2: 1 for a perfect model, 0 for one that always says
/// the mean; NaN where the targets do not vary.
double r_squared(std::span<const double> sums);

}  // namespace dtrain::models
