#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

/// How far a regression is off: R2, and for each of the `targets` of a sample the root of the mean squared
/// error and the mean absolute error, in the units of the targets that the model sees. Of more than
/// kMostScoredTargets targets R2 alone.
ExtraColumns regression_columns(std::int64_t targets);

inline constexpr std::int64_t kMostScoredTargets = 16;

/// What a batch adds to the sums behind those columns, in double. Shapes: [n, targets] in any form, as many
/// elements in `outputs` as in `wanted`.
std::vector<double> regression_score_sums(const at::Tensor& outputs, const at::Tensor& wanted,
                                          std::int64_t targets = 1);

/// R2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2: 1 for a perfect model, 0 for one that always says
/// the mean; NaN where a target does not vary. Of several targets the mean of theirs.
double r_squared(std::span<const double> sums);

/// The values of regression_columns().
std::vector<double> regression_scores(std::span<const double> sums);

}  // namespace dtrain::models
