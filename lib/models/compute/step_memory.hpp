#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dtrain::models {

/// What a layer keeps of one weight while the micro-batches of a step pass, during which its values stand
/// still: see GradientPlace, which has one from the begin to the end of a step of several micro-batches.
///
/// The gradient of a product's weight is a sum over micro-batches, dW = sum_m dY_m^T X_m: as one product over
/// all rows of the step it passes over dW once, not once per micro-batch, which is what small micro-batches
/// of a large weight spend their time on. It also takes dW out of the way of the stages that wait for dX.
/// Source of the split: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024.
class StepMemory {
 public:
  explicit StepMemory(int micro_batches) : micro_batches_(micro_batches) {}

  /// Whether the weight's gradient is held back until the last micro-batch: where what must be kept for it,
  /// `elements` of input and output gradient per micro-batch, takes no more memory than the weight itself.
  /// The step's first micro-batch decides for all of them, whatever their sizes: each must come the same way.
  /// `otherwise`: a layer has another way that is faster for a micro-batch like this one.
  enum class Otherwise { nothing, faster };
  bool holds_back(std::int64_t elements, std::int64_t weight_elements,
                  Otherwise otherwise = Otherwise::nothing);
  bool holds_back() const { return decision_ == Decision::at_the_end; }  ///< As decided.

  /// Keeps what one micro-batch adds to the gradient. True with the last: then the gradient is to be made
  /// from inputs() and output_gradients(), and stands for all micro-batches.
  bool add(const at::Tensor& input, const at::Tensor& output_gradient);
  at::Tensor inputs() const;            ///< Of all micro-batches, joined along dim 0 in the order they came.
  at::Tensor output_gradients() const;  ///< The same of the output gradients.

  /// Micro-batches that the gradient which arrives next is the sum of.
  int summed() const { return inputs_.empty() ? 1 : static_cast<int>(inputs_.size()); }
  /// Whether micro-batches are held back that no caller has been given.
  bool incomplete() const { return !inputs_.empty() && static_cast<int>(inputs_.size()) < micro_batches_; }

  at::Tensor transformed;  ///< The weight in the form the layer computes with; undefined until it is made.

 private:
  int micro_batches_;
  enum class Decision { open, each_time, at_the_end } decision_ = Decision::open;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> output_gradients_;
};

}  // namespace dtrain::models
