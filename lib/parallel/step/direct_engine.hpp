#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/span_sink.hpp"
#include "models/networks/direct_network.hpp"
#include "parallel/step/step_engine.hpp"

namespace dtrain::parallel {

/// The engine of small networks that one rank computes as a whole: without a graph where that fits
/// (DirectNetwork), else by the engine behind it.
class DirectEngine final : public StepEngine {
 public:
  /// `engine` and `sink` are borrowed. `spoils_loss`: as PipelineEngine::Parts has it.
  DirectEngine(StepEngine& engine, std::unique_ptr<models::DirectNetwork> model, SpanSink& sink,
               std::function<bool()> spoils_loss = {})
      : engine_(engine), model_(std::move(model)), sink_(sink), spoils_loss_(std::move(spoils_loss)) {}

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double loss_scale) override;
  std::vector<const models::Parameter*> met_again() const override { return engine_.met_again(); }
  bool runs_layers() const override { return engine_.runs_layers(); }
  void keep_weights(LayerWeights& weights, int micro_batches) override {
    brings_weights_ = true;
    engine_.keep_weights(weights, micro_batches);
  }

 private:
  bool fits(const StepPlan& plan) const;

  StepEngine& engine_;
  std::unique_ptr<models::DirectNetwork> model_;
  SpanSink& sink_;
  std::function<bool()> spoils_loss_;
  bool brings_weights_ = false;  // layer by layer
};

}  // namespace dtrain::parallel
