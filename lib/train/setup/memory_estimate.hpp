#pragma once

#include <cstdint>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// Memory of one rank, estimated from shapes, in bytes.
struct MemoryEstimate {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< Of all micro-batches that live at once.
  double total() const { return parameters + gradients + optimizer + activations; }
};

/// Of rank `pipe_index` of a pipeline when the first `repeated_layers` of each of its stages keep their
/// inputs only.
MemoryEstimate estimate_memory(const RunConfig& config, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers);

/// Of one sample in a forward pass without backward: the largest of what goes into a layer and what it makes
/// of it, in bytes. `model`: before it is cut or sliced.
double evaluation_bytes(const RunConfig& config, const models::Model& model,
                        const models::Shape& sample_shape);

/// How many first layers of each stage run again in backward: what `--recompute` asks for; with auto the
/// fewest that keep the estimate within `--memory-limit`, or all. Throws Error (exit code 2) when parameters,
/// gradients and optimizer alone pass the limit.
std::int64_t repeated_layers(const RunConfig& config, const models::Model& model,
                             const parallel::StageCuts& cuts, int pipe_index,
                             const models::Shape& sample_shape);

}  // namespace dtrain::train
