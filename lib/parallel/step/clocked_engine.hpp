#pragma once

#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "parallel/step/step_engine.hpp"

namespace dtrain::parallel {

/// Computes as the engine behind it, and lets the clock of an emulated machine pass meanwhile.
class ClockedEngine final : public StepEngine {
 public:
  ClockedEngine(StepEngine& engine, comm::VirtualClock& clock) : engine_(engine), clock_(clock) {}

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double loss_scale) override {
    double count = 0;
    for (const auto& micro_batch : plan.micro_batches) count += static_cast<double>(micro_batch.samples());
    clock_.compute(plan.number, count);
    return engine_.compute(plan, samples, sums, loss_scale);
  }
  std::vector<const models::Parameter*> met_again() const override { return engine_.met_again(); }
  void keep_weights(LayerWeights& weights, int micro_batches) override {
    engine_.keep_weights(weights, micro_batches);
  }

 private:
  StepEngine& engine_;
  comm::VirtualClock& clock_;
};

}  // namespace dtrain::parallel
