#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace dtrain::models {

/// One piece's gradient of a table of which it used few rows, in factors: row r receives the sum of
/// scales[b] x gradient[b] over all places (b, t) with ids[b, t] = r. Id 0 is padding and receives nothing.
struct RowGradient {
  at::Tensor ids;       ///< int32 [n, T], contiguous.
  at::Tensor scales;    ///< [n]
  at::Tensor gradient;  ///< [n, D], contiguous.
};

/// Where a parameter's gradient goes instead of .grad when it is collected by rows: filled by backward in the
/// order of the pieces.
using RowGradients = std::vector<RowGradient>;

}  // namespace dtrain::models
