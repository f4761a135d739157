#pragma once

#include <cstdint>
#include <string>

#include "models/model.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::plan {

/// An estimate may be so much too small: what is chosen by it leaves that of a limit.
inline constexpr double kEstimateError = 0.05;

/// What a run's memory depends on, beside its model.
struct Footprint {
  double element_bytes = 4;   ///< Of parameters, gradients and activations.
  bool half = false;          ///< Products give their results in 16 bits.
  bool keeps_halves = false;  ///< Then what is trained is kept in 16 bits too; else each use converts it.
  models::Kernels kernels = models::Kernels::own;
  bool loss_takes_factors = false;  ///< See models::LossScope.
  int copies = 1;                   ///< Of the model: ranks of the data axis.
  int tensor = 1;                   ///< Ranks that hold slices of a layer.
  int micro_batches = 1;            ///< Of all copies together, in a step.
  int largest_piece = 1;            ///< Samples of the largest one.
  parallel::Pipelining pipelining = parallel::Pipelining::layerwise;
  int optimizer_states = 0;          ///< Tensors of each parameter's size that the optimizer keeps.
  int coded_states = 0;              ///< Of these, in 8 bits.
  double coded_bytes = 0;            ///< Of a value then, scales included.
  std::int64_t least_coded = 0;      ///< Values of the smallest parameter that has them so.
  int offloaded_states = 0;          ///< Of all states, in the host's memory instead of a device's.
  std::int64_t offloaded_chunk = 0;  ///< Values of each of them that are on the device at a time.
  int optimizer_shards = 1;          ///< Ranks that share them out.
  int gradient_shards = 1;           ///< Likewise the gradients.
  int parameter_shards = 1;          ///< Likewise the parameters that are trained.
  bool gathers_layers = false;       ///< A layer's parameters are brought together while it computes.
  bool starts_in_shards = false;     ///< They have no values as a whole before.
  int block_ranks = 1;               ///< Ranks of a node that has parameters and states once, in one block.
  std::int64_t bucket_bytes = 0;     ///< Of gradients that travel together: parallel::cut_buckets().
  bool makes_products = false;       ///< parallel::ProductSums, where they pay.
  bool updates_by_rows = false;      ///< parallel::RowUpdates, where there is a table for them.
  bool clips_samples = false;        ///< The gradient of each sample is clipped: parallel::SampleWalk.
  bool reproducible = false;
  bool undoes = false;              ///< What an update changes is kept until the next one.
  bool saves = false;               ///< A checkpoint may be written while it trains: a copy of what is saved.
  std::int64_t smallest_share = 1;  ///< Bytes that a rank saves at least, where several share that out.

  parallel::Computed computed() const {
    return half || kernels == models::Kernels::libtorch ? parallel::Computed::by_a_library
                                                        : parallel::Computed::by_own_kernels;
  }
};

/// Memory of one rank, estimated from shapes, in bytes.
struct MemoryEstimate {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< Of all micro-batches that live at once.
  double exchange = 0;     ///< Buckets of gradients, and layers' parameters, on their way.
  double copies = 0;       ///< Of the state: for a checkpoint, or to roll an update back.
  double apart = 0;  ///< At once where there are no activations: before the first step, or when it saves.

  /// Beside activations.
  double held() const { return parameters + gradients + optimizer + exchange + copies; }
  double total() const { return held() + activations > apart ? held() + activations : apart; }
};

/// Of rank `pipe_index` of a pipeline when the first `repeated_layers` of each of its stages keep their
/// inputs only.
MemoryEstimate estimate_memory(const Footprint& footprint, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers);

/// Of one sample in a forward pass without backward: the largest of what goes into a layer and what it makes
/// of it, in bytes. `model`: before it is cut or sliced.
double evaluation_bytes(const Footprint& footprint, const models::Model& model,
                        const models::Shape& sample_shape);
/// Beside that, whatever the number of samples: a weight that is converted, in bytes.
double evaluation_beside(const Footprint& footprint, const models::Model& model);

/// Which layers are to run again in backward, as options say it.
struct Recompute {
  std::string what = "none";     ///< none, full, or auto: as few as the limit allows.
  std::int64_t limit_bytes = 0;  ///< Of a rank; 0: none.
  std::string limit;             ///< The same as the user wrote it.
};

/// Layers of the longest stage.
std::int64_t longest_stage(const parallel::StageCuts& cuts);

/// Whether an estimate keeps within a limit, with kEstimateError to spare.
inline bool keeps_within(double bytes, double limit) { return (1 + kEstimateError) * bytes <= limit; }

/// How many first layers of each stage have to run again in backward: the fewest that keep the estimate of
/// rank `pipe_index` within the limit, or where none do, as many as need least.
std::int64_t layers_to_repeat(double limit_bytes, const Footprint& footprint, const models::Model& model,
                              const parallel::StageCuts& cuts, int pipe_index,
                              const models::Shape& sample_shape);

/// How many run again as the options say it; with auto layers_to_repeat(). Throws Error (exit code 2) when
/// parameters, gradients and optimizer alone pass the limit.
std::int64_t repeated_layers(const Recompute& recompute, const Footprint& footprint,
                             const models::Model& model, const parallel::StageCuts& cuts, int pipe_index,
                             const models::Shape& sample_shape);

}  // namespace dtrain::plan
