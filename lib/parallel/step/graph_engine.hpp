#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.hpp"
#include "parallel/step/captures.hpp"
#include "parallel/step/pipeline_engine.hpp"
#include "parallel/step/step_capture.hpp"
#include "parallel/step/step_engine.hpp"

namespace dtrain::parallel {

/// The engine of a rank that has a whole copy of the model on a device: it captures a step as the device is
/// given it, and replays it for all steps with micro-batches of the same sizes. A replay is a few calls
/// instead of one for each operation. What differs between steps is in the device's memory then: samples, the
/// step's number, the loss's scale. Steps that were not done often enough, or cannot be captured, are left to
/// the PipelineEngine.
class GraphEngine final : public StepEngine {
 public:
  /// Gets a sentence for the log: that steps are captured, or why they are not.
  using Tell = CaptureNews;

  /// Everything is borrowed. `device`: the model's.
  GraphEngine(PipelineEngine& direct, StepCapture& capture, models::Model& model, at::Device device,
              Tell tell);

  std::vector<MicroBatchLoss> compute(const StepPlan& plan, SampleSource& samples, LocalSums& sums,
                                      double loss_scale) override;
  std::vector<const models::Parameter*> met_again() const override { return direct_.met_again(); }

 private:
  struct Captured {
    std::vector<Samples> samples;  // where the step looks for them
    std::vector<MicroBatchLoss> losses;
    CapturedStep step;
  };
  /// The step that is replayed now.
  struct Running {
    const StepPlan& plan;
    SampleSource& samples;
  };
  const Captured* captured_for(const Running& running, LocalSums& sums);
  std::unique_ptr<Captured> capture(const Running& running, LocalSums& sums);
  Samples memory_for(const Samples& samples) const;

  PipelineEngine& direct_;
  StepCapture& capture_;
  models::Model& model_;
  at::Device device_;
  Tell tell_;
  PipelineEngine::Replayed replayed_;
  using Sizes = std::vector<std::pair<std::uint32_t, std::int64_t>>;  // index and samples of each micro-batch
  Captures<Sizes, Captured> captures_;
  const Running* running_ = nullptr;
};

}  // namespace dtrain::parallel
