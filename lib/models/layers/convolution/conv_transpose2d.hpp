#pragma once

#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// The gradient of a convolution with respect to its input as a layer of its own, which enlarges images.
/// `geometry` is read as PyTorch's ConvTranspose2d reads it: from `in_channels` to `out_channels`. Parameters
/// NAME.weight [in, out, k, k] and NAME.bias [out], from U(-1/sqrt(out k k), 1/sqrt(out k k)), PyTorch's
/// default.
class ConvTranspose2d final : public Layer {
 public:
  ConvTranspose2d(const std::string& name, const Conv2d::Geometry& geometry)
      : ConvTranspose2d(name, geometry, Conv2d::Style()) {}
  /// Of `style`, where images and weights lie and how they are sliced.
  ConvTranspose2d(const std::string& name, const Conv2d::Geometry& geometry, const Conv2d::Style& style);

  /// [N, in, H, W] -> [N, out, (H - 1) stride - 2 padding + kernel, ...]. Throws Error (exit code 2) for
  /// another shape.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

  const Conv2d::Geometry& geometry() const { return geometry_; }
  Conv2d::Images images() const { return images_; }

 private:
  at::Tensor convolved(const at::Tensor& input, Parameter& bias);
  Conv2d::Geometry geometry_;
  Conv2d::Images images_;
  TensorGroup* group_ = nullptr;  // null: not sliced
  Parameter no_bias_;             // of a product that is added to others before the bias is
};

/// The operation, by the fastest way there is. Both parameters must outlive the graph.
at::Tensor convolve_transposed(const at::Tensor& input, Parameter& weight, Parameter& bias,
                               const Conv2d::Geometry& geometry);

}  // namespace dtrain::models
