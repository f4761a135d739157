#pragma once

#include <memory>

#include "models/compute/direct_pass.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// Maximum over windows of `extent` x `extent`, moved by `stride`; a remainder is left out, and `padding`
/// rows and columns around the image never win. [N, C, H, W] -> [N, C, H', W']. Windows of 2 x 2 on the CPU
/// run on dtrain's own kernel, which keeps a byte per output for backward where LibTorch keeps the input and
/// an int64.
class MaxPool2d final : public Layer {
 public:
  MaxPool2d(const std::string& name, std::int64_t extent) : MaxPool2d(name, extent, extent, 0) {}
  MaxPool2d(const std::string& name, std::int64_t extent, std::int64_t stride, std::int64_t padding)
      : Layer(name), extent_(extent), stride_(stride), padding_(padding) {}
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

  /// Without a graph, of images that lie as CHWN; null: for other windows than 2 x 2.
  std::unique_ptr<DirectPass> direct_pass() const;

 private:
  bool halves() const { return extent_ == 2 && stride_ == 2 && padding_ == 0; }
  std::int64_t extent_;
  std::int64_t stride_;
  std::int64_t padding_;
};

}  // namespace dtrain::models
