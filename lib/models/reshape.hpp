#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// [N, ...] -> [N, product of the rest], a view where the memory allows.
class Flatten final : public Layer {
 public:
  explicit Flatten(const std::string& name) : Layer(name) {}
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
};

/// Maximum over windows of `extent` x `extent`, moved by `extent`; a remainder is left out.
/// [N, C, H, W] -> [N, C, H / extent, W / extent].
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
