#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "models/compute/direct_pass.hpp"
#include "models/model.hpp"

namespace dtrain::models {

/// The training pass of a small network, forward and back, as calls of its layers' kernels one after the
/// other, in memory that stays. LibTorch's graph and the way through its dispatcher take longer than the
/// products of a layer with a few hundred columns.
class DirectNetwork {
 public:
  /// Null unless `model`, borrowed, is on the CPU, all of it trained, of layers that have a DirectPass:
  /// Flatten and after it Linear, ReLU and sigmoid that overwrite their input, maxima of 2 x 2, and
  /// convolutions and transposed ones of few channels; and the processor has the kernels.
  static std::unique_ptr<DirectNetwork> of(const Model& model);

  /// Whether it is as good as the layers in a step of so many micro-batches, with so many samples each.
  bool fits(std::int64_t samples, std::size_t micro_batches) const;

  /// The sums of Model::loss(), without a graph. `inputs` [n, ...] of the parameters' type, `targets` [n] of
  /// kLong or as the model takes them. Throws Error for inputs that do not fit (exit code 2) and for a target
  /// that is no class (3). Each sample's bits depend on nothing but that sample.
  LossSums forward(const at::Tensor& inputs, const at::Tensor& targets);
  /// After forward(), of the same samples: leaves the sums' gradients, or the factors of those that are
  /// wanted so (GradientPlace::factors()).
  void backward();

 private:
  explicit DirectNetwork(const Model& model) : model_(model) {}
  void check(const at::Tensor& inputs);
  LossSums classified(const at::Tensor& logits, const at::Tensor& targets);
  LossSums compared(const at::Tensor& outputs, const at::Tensor& targets);

  const Model& model_;
  std::vector<std::unique_ptr<DirectPass>> passes_;  // by layer
  std::size_t first_trained_ = 0;                    // the first that has parameters
  Shape checked_;                                    // inputs of this shape fit
  bool classifies_ = false;
  at::Tensor gradient_;  // of the last outputs
};

}  // namespace dtrain::models
