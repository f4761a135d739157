#pragma once

#include <cstdint>

#include "comm/group.hpp"
#include "core/span_sink.hpp"
#include "data/loader.hpp"
#include "models/embedding_bag.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradient_buckets.hpp"
#include "parallel/row_updates.hpp"
#include "parallel/segments.hpp"
#include "parallel/step_control.hpp"
#include "parallel/step_statistics.hpp"
#include "train/preparation.hpp"

namespace dtrain::train {

/// What one step came to.
struct StepOutcome {
  parallel::StepShare own;    ///< This rank's samples.
  parallel::StepShare total;  ///< All ranks' samples: the same on every rank.
  double gradient_norm = 0;   ///< Of the mean gradient, before clipping.
};

/// One optimizer update: this rank's micro-batches forward and back, the gradients summed over the ranks
/// while backward runs, the control message, and then, on all ranks or on none, the update.
class TrainingStep {
 public:
  struct Parts {
    comm::Group& group;  ///< The ranks whose gradients are summed.
    models::Model& model;
    parallel::FlatParameters& parameters;
    parallel::GradientBuckets& buckets;
    parallel::StepControl& control;
    parallel::StepStatistics& statistics;
    optim::Optimizer& optimizer;
    const Preparation& preparation;
    SpanSink& sink;
    at::Tensor class_weights = {};         ///< [classes]; undefined: all samples count alike.
    parallel::RowUpdates* rows = nullptr;  ///< Of the first layer's table; null: its gradient is dense.
  };
  /// `grad_clip`: largest norm of the whole mean gradient; 0: no limit.
  TrainingStep(const Parts& parts, std::uint64_t seed, double grad_clip);

  /// Takes `pieces` batches from `loader`. `step` counts from 1. Collective.
  /// Throws Error when the loss or a gradient is not finite; no rank has updated then.
  StepOutcome run(std::int64_t step, int pieces, data::Loader& loader, double learning_rate);

 private:
  /// A micro-batch as the model takes it.
  struct Piece {
    std::uint32_t micro_batch = 0;
    std::int64_t samples = 0;
    models::Tensors inputs;
    at::Tensor targets;
  };
  Piece next_piece(data::Loader& loader) const;
  void compute_piece(Piece piece, std::int64_t step, parallel::StepShare& own);
  void compute_by_rows(std::int64_t step, int pieces, data::Loader& loader, parallel::StepShare& own);
  void measure_gradient(parallel::StepShare& own) const;
  [[noreturn]] void report_non_finite(std::int64_t step, const parallel::StepShare& total) const;

  Parts parts_;
  parallel::SegmentWalk walk_;
  std::uint64_t seed_;
  double grad_clip_;
};

}  // namespace dtrain::train
