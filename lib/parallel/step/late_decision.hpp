#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/fused/rules.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Decides where the gradient lies whether a step is applied, and how far its gradient is clipped. The CPU
/// gives the device norm, decision and update without waiting, and reads what came of them, with the step's
/// losses, when the next step is under way: the device never waits for the CPU to look at a number.
class LateDecision {
 public:
  /// Whether gradients like `values`, float, can be decided on where they lie.
  static bool takes(const at::Tensor& values);

  /// A step whose update is with the device.
  struct Step {
    std::int64_t number = 0;
    double weight =
        0;  ///< Of all ranks' samples, times the loss's scale: the gradient's sum is divided by it.
  };
  /// `gradients`: whole, the same on all ranks. `clip`: largest norm of the mean gradient, 0: any. `updates`:
  /// made before this step; read in the first call only, since the device counts on. `losses`: of the step.
  /// Returns the decision for optim::Optimizer::step_as_decided(), valid until the next call. What the step
  /// before came to must have been taken.
  const at::Tensor& decide(const Step& step, const at::Tensor& gradients, double clip, std::int64_t updates,
                           std::vector<MicroBatchLoss> losses);

  /// What a step came to on this rank.
  struct Outcome {
    Step step;
    std::vector<MicroBatchLoss> losses;  ///< On the CPU.
    kernels::UpdateDecision decision;
  };
  bool under_way() const { return under_way_.has_value(); }
  /// Of the step given to decide() last; waits until the device has decided. Only while under_way().
  Outcome take();

 private:
  struct UnderWay {
    Step step;
    std::vector<MicroBatchLoss> losses;
    at::Tensor numbers;               // on the CPU, or on their way there
    std::optional<c10::Event> there;  // after which they are; empty: they are
  };
  at::Tensor decision_;  // bytes of a kernels::UpdateDecision
  std::optional<UnderWay> under_way_;
};

}  // namespace dtrain::parallel
