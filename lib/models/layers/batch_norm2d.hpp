#pragma once

#include "models/layers/batch_norm.hpp"

namespace dtrain::models {

/// Batch normalisation as a layer of its own, with the ReLU behind it in the same pass where `then` says so.
/// Parameters NAME.weight, NAME.bias [C]; buffers NAME.running_mean, NAME.running_var [C] and
/// NAME.num_batches_tracked. See models/layers/batch_norm.hpp.
class BatchNorm2d final : public Layer {
 public:
  BatchNorm2d(const std::string& name, std::int64_t channels, kernels::Then then,
              Slicing slicing = Slicing::none);

  /// [N, C, H, W] -> the same. Throws Error (exit code 2) for another shape.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

 private:
  std::int64_t channels_;
  kernels::Then then_;
  BatchNorm place_;
};

}  // namespace dtrain::models
