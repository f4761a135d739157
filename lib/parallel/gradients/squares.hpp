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

/// The same in two calls, between which the caller may bring `numbers` to the CPU together with others.
struct StartedSquares {
  at::Tensor numbers;  ///< double [2 x parts], where the values are; undefined: nothing was started.
  bool holds_bits = false;
};
/// Waits for nothing. Nothing is started on the CPU.
StartedSquares start_squares(const at::Tensor& values, std::span<const Range> parts);
/// `started` as start_squares() gave it, its numbers there or on the CPU.
std::vector<kernels::SumOfSquares> finish_squares(const StartedSquares& started);

kernels::SumOfSquares squares_of(const at::Tensor& values);  ///< Of all of them.

}  // namespace dtrain::parallel
