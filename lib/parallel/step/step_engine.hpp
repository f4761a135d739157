#pragma once

#include <vector>

#include "models/layer.hpp"
#include "parallel/pipeline/layer_weights.hpp"
#include "parallel/step/sample_source.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Where the gradients of a step are gathered. A strategy implements it.
class LocalSums {
 public:
  virtual ~LocalSums() = default;

  /// Forgets all gradients: `micro_batches` are about to pass backward. An engine may begin a step again, as
  /// long as it has computed nothing of it.
  virtual void begin_step(int micro_batches) = 0;

  /// The micro-batch with MicroBatch::index `index` has passed backward through all layers of this rank. Its
  /// gradients are in the parameters' .grad.
  virtual void taken_back(int index) = 0;
};

/// Runs the micro-batches of a step forward and back on this rank's copy of the model. It leaves gradient
/// sums and losses of this copy; the copies agree on nothing here. That is what a strategy does.
class StepEngine {
 public:
  virtual ~StepEngine() = default;

  /// Takes the plan's micro-batches from `samples` on the ranks that need them: the first and the last of a
  /// pipeline. `loss_scale` multiplies the loss before backward. Returns the losses, on the last rank of a
  /// pipeline only. Collective over the pipeline.
  virtual std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                              double loss_scale) = 0;

  /// The parameters that get more than one gradient in a micro-batch, once for each gradient after the first.
  virtual std::vector<const models::Parameter*> met_again() const = 0;

  /// Whether gradients come from backward passes of the model's own layers, each followed by
  /// LocalSums::taken_back(): then layers may leave something else in their place
  /// (models::GradientPlace).
  virtual bool runs_layers() const { return false; }

  /// From now on `weights`, borrowed, brings the weights of each layer while it computes, in each step for
  /// `micro_batches`, whether this copy has as many or fewer. Throws Error where the engine cannot.
  virtual void keep_weights(LayerWeights& weights, int micro_batches);
};

}  // namespace dtrain::parallel
