#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.hpp"
#include "parallel/sample_source.hpp"
#include "parallel/step.hpp"
#include "parallel/step_capture.hpp"

namespace dtrain::train {

using parallel::MicroBatchLoss;
using parallel::Samples;

/// Forward and backward of a rank that has whole copies of a model, given to its device by replaying what was
/// captured of an earlier step with pieces of the same sizes: a few calls instead of one for each operation.
/// What differs between steps is in the device's memory then: samples, the step's number, the loss's scale.
class StepGraphs {
 public:
  /// Whoever does the steps.
  struct Step {
    const parallel::StepPlan& plan;
    parallel::SampleSource& samples;
    /// Gives the device all of the step, with the samples that `samples_of` has of each micro-batch.
    std::function<void(const std::function<Samples(std::size_t micro_batch)>& samples_of)> give;
    /// As if nothing of the step had been given yet.
    std::function<void()> begin_anew;
  };
  /// For people: that steps are captured, or why they are not.
  using Tell = std::function<void(const std::string&)>;

  /// Everything is borrowed. `device`: the model's.
  StepGraphs(parallel::StepCapture& capture, models::Model& model, at::Device device, Tell tell);

  /// Does the step, and then `losses` are its own; false where it is to be done without a graph: it was not
  /// done often enough, or cannot be captured. `losses`: what step.give() fills.
  bool run(double loss_scale, const Step& step, std::vector<MicroBatchLoss>& losses);

  /// While a step is captured: the number and the loss's scale of that which is replayed, on the device; else
  /// undefined.
  at::Tensor replayed_step() const { return capture_.capturing() ? number_ : at::Tensor(); }
  at::Tensor replayed_loss_scale() const { return capture_.capturing() ? loss_scale_ : at::Tensor(); }

 private:
  struct Captured {
    std::vector<Samples> samples;  // where the step looks for them
    std::vector<MicroBatchLoss> losses;
    parallel::CapturedStep step;
  };
  struct Known {
    int done = 0;  // without a graph
    std::unique_ptr<Captured> captured;
    bool refused = false;
  };
  std::unique_ptr<Captured> capture(const Step& step, const std::vector<MicroBatchLoss>& losses);
  Samples memory_for(const Samples& samples) const;
  void refuse(Known& known, const std::string& why);

  parallel::StepCapture& capture_;
  models::Model& model_;
  at::Device device_;
  Tell tell_;
  at::Tensor number_;                                                 // int32 [1]
  at::Tensor loss_scale_;                                             // float, scalar
  using Sizes = std::vector<std::pair<std::uint32_t, std::int64_t>>;  // index and samples of each micro-batch
  std::map<Sizes, Known> known_;
  const Step* running_ = nullptr;
};

}  // namespace dtrain::train
