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
/// losses, when the next step is under way: the device never waits for the CPU to look at a number. For each
/// step begin(), decide() and end().
class LateDecision {
 public:
  /// Whether gradients like `values`, float, can be decided on where they lie.
  static bool takes(const at::Tensor& values);

  /// A step whose update is with the device.
  struct Step {
    std::int64_t number = 0;
    double weight =
        0;  ///< Of all ranks' samples, times the loss's scale: the gradient's sum is divided by it.
    double learning_rate = 0;
  };
  /// Gives the device what the CPU knows of the step. `updates`: made before this step; read in the first
  /// call only, since the device counts on. `losses`: of the step, where `device` has them. What the step
  /// before came to must have been taken.
  void begin(const Step& step, std::int64_t updates, std::vector<MicroBatchLoss> losses, at::Device device);
  /// `gradients`: whole, the same on all ranks. `clip`: largest norm of the mean gradient, 0: any. Returns
  /// the decision for optim::Optimizer::step_as_decided(). It always lies in the same memory, and the CPU
  /// gives nothing of its own: the device may be given the same again for another step.
  const at::Tensor& decide(const at::Tensor& gradients, double clip);
  /// Has the decision and the losses brought to the CPU.
  void end();

  /// What a step came to on this rank.
  struct Outcome {
    Step step;
    std::vector<MicroBatchLoss> losses;  ///< On the CPU.
    kernels::UpdateDecision decision;
  };
  bool under_way() const { return under_way_.has_value(); }
  /// Of the step begun last; waits until the device has decided. Only while under_way().
  Outcome take();

 private:
  struct UnderWay {
    Step step;
    std::vector<MicroBatchLoss> losses;
    at::Tensor losses_there = {};          // on a device: [n], before the CPU reads them
    at::Tensor numbers = {};               // on the CPU, or on their way there
    std::optional<c10::Event> there = {};  // after which they are; empty: they are
  };
  at::Tensor decision_;     // bytes of a kernels::UpdateDecision, with the gradient
  at::Tensor inputs_;       // of a kernels::UpdateInputs, there too
  at::Tensor inputs_here_;  // the same on the CPU, from where a device gets it
  std::optional<UnderWay> under_way_;
};

}  // namespace dtrain::parallel
