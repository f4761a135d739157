#pragma once

#include <cstdint>
#include <span>

#include "data/import/originals.hpp"

namespace dtrain::data {

enum class Scaling { none, standardize };

/// Completes the inputs of a table, float64 [n, F] with NaN in the gaps, by what train's rows say, and makes
/// them float32: gaps get
/// their column's mean over `train` (rows of splits["train"]; 0 where train has no value), and with
/// Scaling::standardize numbers become (x - mean) / std; inputs of labels and gaps stay 0 and 1. Notes in
/// originals.columns what was done.
void fill_gaps(Originals& originals, std::span<const std::int64_t> train, Scaling scaling);

/// Notes in originals.target_scales mean and standard deviation over `train` of each target, float32 [n] or
/// [n, K]; of a target that never changes 1 as its deviation. The targets stay as they are.
void scale_targets(Originals& originals, std::span<const std::int64_t> train);

}  // namespace dtrain::data
