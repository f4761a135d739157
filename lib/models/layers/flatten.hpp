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

}  // namespace dtrain::models
