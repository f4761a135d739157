#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// Means over windows chosen so that `extent` x `extent` of them cover the image (PyTorch's
/// AdaptiveAvgPool2d): [N, C, H, W] -> [N, C, extent, extent]. An image of that size passes through.
class AveragePool2d final : public Layer {
 public:
  AveragePool2d(const std::string& name, std::int64_t extent) : Layer(name), extent_(extent) {}
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

 private:
  std::int64_t extent_;
};

}  // namespace dtrain::models
