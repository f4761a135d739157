#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// Cross-correlation with a square kernel, stride and zero padding alike in both dims. Parameters NAME.weight
/// [out, in, k, k] and NAME.bias [out], from U(-1/sqrt(in k k), 1/sqrt(in k k)), PyTorch's default.
class Conv2d final : public Layer {
 public:
  struct Geometry {
    std::int64_t in_channels = 1;
    std::int64_t out_channels = 1;
    std::int64_t kernel = 3;
    std::int64_t stride = 1;
    std::int64_t padding = 0;
  };

  Conv2d(const std::string& name, const Geometry& geometry);

  /// [N, in, H, W] -> [N, out, H', W']. Throws Error (exit code 2) for another shape.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

 private:
  std::int64_t extent_after(std::int64_t extent) const;
  Geometry geometry_;
};

}  // namespace dtrain::models
