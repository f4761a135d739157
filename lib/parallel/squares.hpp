#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/reduce.hpp"

namespace dtrain::parallel {

/// What flat values, float or double, are asked before an update. Waits for the device they are on.
kernels::SumOfSquares squares_of(const at::Tensor& values);

}  // namespace dtrain::parallel
