#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// Zeroes elements with `probability` and scales the others by 1 / (1 - probability), in training only. The
/// mask is a pure function of (seed, step, micro-batch, layer name, element index): see kernels/dropout.hpp.
class Dropout final : public Layer {
 public:
  /// Throws Error (exit code 2) unless `probability` is in [0, 1).
  Dropout(const std::string& name, double probability);

  /// Any shape, float or double, on the CPU.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override { return inputs; }
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

 private:
  double probability_;
  Flow flow_;  // of its inputs
};

/// The operation itself, for layers that drop inside (differentiable; the mask is computed again in
/// backward). `flow`: which part of the logical tensor [n, channels, ...] `input` is; it has that part's
/// mask.
at::Tensor dropout(const at::Tensor& input, double probability, const MaskKey& key, const Flow& flow = {});
/// Of the input's size, in the type that computes: 1 where LibTorch multiplies by the mask.
double masks_kept_by_dropout();

}  // namespace dtrain::models
