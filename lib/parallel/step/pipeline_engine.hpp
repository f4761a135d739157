#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "models/model.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/step/step_engine.hpp"

namespace dtrain::parallel {

/// The engine that gives the device each operation of each step: the micro-batches pass through a pipeline of
/// ranks, or through one rank, in the order of a schedule.
class PipelineEngine final : public StepEngine {
 public:
  struct Parts {
    models::Model& model;  ///< Holds this rank's layers.
    Pipeline& pipeline;
    Pipelining pipelining = Pipelining::layerwise;
    int stages_per_rank = 1;
    std::uint64_t seed = 1;                          ///< Of dropout.
    std::optional<at::ScalarType> half = {};         ///< Mixed precision, see models::ProductScope.
    models::Kernels kernels = models::Kernels::own;  ///< See models::KernelScope.
    models::TrainingLoss training_loss = {};
    bool reproducible = false;  ///< The same bits on any number of ranks of the pipeline.
    at::Device device = at::kCPU;
    /// A fault on demand: whether this step's losses are not numbers. Empty: never.
    std::function<bool()> spoils_loss = {};
  };
  explicit PipelineEngine(const Parts& parts) : parts_(parts) {}

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double loss_scale) override;
  std::vector<const models::Parameter*> met_again() const override { return parts_.pipeline.met_again(); }
  bool runs_layers() const override { return true; }
  void keep_weights(LayerWeights& weights, int micro_batches) override;

  /// What differs between the replays of a captured step, in the device's memory. Undefined tensors: nothing
  /// is captured.
  struct Replayed {
    at::Tensor step;        ///< int32 [1]
    at::Tensor loss_scale;  ///< Float, scalar.
  };
  using SamplesOf = std::function<Samples(std::size_t micro_batch)>;
  /// The same without LocalSums::begin_step() and without reading ahead.
  std::vector<MicroBatchLoss> give(const StepPlan& plan, const SamplesOf& samples_of, LocalSums& sums,
                                   double loss_scale, const Replayed& replayed = {});

  /// Reads the next plan's first micro-batch while a device computes, where that helps.
  void read_ahead(const StepPlan& plan, SampleSource& samples) const;

 private:
  const Schedule& schedule_for(std::size_t micro_batches);

  Parts parts_;
  std::map<std::size_t, Schedule> schedules_;  // by number of micro-batches
  std::size_t fewest_ = 0;                     // micro-batches for which weights are brought
};

}  // namespace dtrain::parallel
