#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/model.hpp"

namespace dtrain::parallel {

/// How a run computes, and where.
struct TimedRun {
  std::int64_t vocabulary = 0;  ///< Inputs are ids below it; 0: numbers.
  at::ScalarType type = at::kFloat;
  std::optional<at::ScalarType> half = {};         ///< Mixed precision, see models::ProductScope.
  models::Kernels kernels = models::Kernels::own;  ///< See models::KernelScope.
  bool reproducible = false;
  std::uint64_t seed = 1;
  at::Device device = at::kCPU;
};

/// Seconds that each layer takes forward and back for `inputs` (shapes of a micro-batch), the mean over a few
/// micro-batches of one step on made-up values. One layer after the other has memory, on the run's device:
/// the model, which may have shapes only, is afterwards as it was.
std::vector<double> measure_layers(models::Model& model, const std::vector<models::Shape>& inputs,
                                   const TimedRun& run);

}  // namespace dtrain::parallel
