#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/philox.hpp"

namespace dtrain::kernels {

/// Where a rank's contiguous piece [rows, columns] lies in the logical whole tensor: element (r, c) has the
/// index first_index + r * row_stride + c. The whole tensor is one row.
struct LogicalSlice {
  std::uint64_t first_index = 0;
  std::size_t rows = 1;
  std::size_t columns = 0;
  std::uint64_t row_stride = 0;
};

/// What dropout() does with an element's 16 random bits.
struct DropoutRule {
  std::uint16_t threshold = 0;  ///< Below it the element is dropped.
  double scale = 1.0;           ///< Of those that are kept.
};
inline DropoutRule dropout_rule(double probability) {
  const double threshold = std::clamp(std::round(probability * 65536.0), 0.0, 65535.0);
  return {static_cast<std::uint16_t>(threshold), 65536.0 / (65536.0 - threshold)};
}

/// out = input x mask / (1 - p): an element is dropped when its 16 random bits are below p x 65536 (rounded,
/// and the scale is of the rounded p, so that the mean is kept exactly). Element i of the whole tensor has
/// bits 16 (i % 8) and up of the stream's block i / 8. The mask is never stored: backward is the same call on
/// the gradient. `out` may be `input`. `probability` in [0, 1).
template <class T>
void dropout(T* out, const T* input, const LogicalSlice& slice, const RandomKey& key, double probability);

extern template void dropout<float>(float*, const float*, const LogicalSlice&, const RandomKey&, double);
extern template void dropout<double>(double*, const double*, const LogicalSlice&, const RandomKey&, double);

}  // namespace dtrain::kernels
