#pragma once

#include <cstdint>
#include <string>

#include "models/model.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::plan {

/// What a run's memory depends on, beside its model.
struct Footprint {
  double element_bytes = 4;  ///< Of parameters, gradients and activations.
  int copies = 1;            ///< Of the model: ranks of the data axis.
  int micro_batches = 1;     ///< Of all copies together, in a step.
  int largest_piece = 1;     ///< Samples of the largest one.
  parallel::Pipelining pipelining = parallel::Pipelining::layerwise;
  int optimizer_states = 0;  ///< Tensors of each parameter's size that the optimizer keeps.
  int optimizer_shards = 1;  ///< Ranks that share them out.
  int gradient_shards = 1;   ///< Likewise the gradients.
  int parameter_shards = 1;  ///< Likewise the parameters that are trained.
  bool reproducible = false;
};

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
MemoryEstimate estimate_memory(const Footprint& footprint, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers);

/// Of one sample in a forward pass without backward: the largest of what goes into a layer and what it makes
/// of it, in bytes. `model`: before it is cut or sliced.
double evaluation_bytes(double element_bytes, const models::Model& model, const models::Shape& sample_shape);

/// Which layers are to run again in backward, as options say it.
struct Recompute {
  std::string what = "none";     ///< none, full, or auto: as few as the limit allows.
  std::int64_t limit_bytes = 0;  ///< Of a rank; 0: none.
  std::string limit;             ///< The same as the user wrote it.
};

/// How many first layers of each stage run again in backward; with auto the fewest that keep the estimate
/// within the limit, or all. Throws Error (exit code 2) when parameters, gradients and optimizer alone pass
/// the limit.
std::int64_t repeated_layers(const Recompute& recompute, const Footprint& footprint,
                             const models::Model& model, const parallel::StageCuts& cuts, int pipe_index,
                             const models::Shape& sample_shape);

}  // namespace dtrain::plan
