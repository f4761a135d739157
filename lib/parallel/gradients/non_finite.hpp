#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "models/model.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/row_updates.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// A step's gradient as one rank holds it. Borrowed.
struct GradientOfRank {
  const models::Model& model;
  const FlatParameters& parameters;
  const at::Tensor& gradients;          ///< Flat.
  const std::vector<Range>& own_parts;  ///< What this rank vouches for.
  const RowUpdates* rows = nullptr;     ///< Of a table whose gradient is not in `gradients`; null: all are.
  bool holds_parts = false;             ///< `gradients` are own_parts alone, one behind the other.
};

/// Throws Error naming the step and, of the parameters with a gradient that is not finite on any rank, the
/// one nearest to the loss. `total`: what all ranks came to. Collective over `world`.
[[noreturn]] void report_non_finite(comm::Group& world, const GradientOfRank& gradient, std::int64_t step,
                                    const StepTotals& total);

}  // namespace dtrain::parallel
