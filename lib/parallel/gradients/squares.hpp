#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "core/slice.hpp"
#include "kernels/reduce.hpp"

namespace dtrain::parallel {

/// What flat values, float or double, are asked before an update: of each of these parts of them. Waits for
/// the device they are on, once.
std::vector<kernels::SumOfSquares> squares_of(const at::Tensor& values, std::span<const Range> parts);

kernels::SumOfSquares squares_of(const at::Tensor& values);  ///< Of all of them.

}  // namespace dtrain::parallel
