#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// Maximum over windows of `extent` x `extent`, moved by `extent`; a remainder is left out.
/// [N, C, H, W] -> [N, C, H / extent, W / extent]. Windows of 2 x 2 on the CPU run on dtrain's own kernel,
/// which keeps a byte per output for backward where LibTorch keeps the input and an int64.
class MaxPool2d final : public Layer {
 public:
  MaxPool2d(const std::string& name, std::int64_t extent) : Layer(name), extent_(extent) {}
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

 private:
  std::int64_t extent_;
};

}  // namespace dtrain::models
