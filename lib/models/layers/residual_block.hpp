#pragma once

#include "models/layers/batch_norm.hpp"
#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// Two convolutions 3 x 3 whose result is added to their input: bn2(conv2(relu(bn1(conv1(x))))) + x, ReLU.
/// Where stride or channels differ x goes through downsample.0 (1 x 1) and downsample.1 (BatchNorm) first.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; names are torchvision's.
///
/// One layer, not a run of layers that pass a skip tensor along: a cut inside would send two tensors where a
/// cut between blocks sends one, and the pair of convolutions is what the tensor axis slices (conv1 by its
/// outputs, bn1 with them, conv2 by its inputs: one sum over the ranks per block).
class ResidualBlock final : public Layer {
 public:
  ResidualBlock(const std::string& name, std::int64_t in_channels, std::int64_t out_channels,
                std::int64_t stride);

  /// [N, in, H, W] -> [N, out, H / stride, W / stride] (rounded up). Throws Error (exit code 2) for another
  /// shape.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  Flow slice(TensorGroup& group, const Flow& flow) override;

 private:
  /// A convolution without bias and the normalisation of its result.
  struct Stage {
    Conv2d::Geometry geometry;
    std::size_t weight = 0;  // in parameters_
    BatchNorm norm;
  };
  Stage add_stage(const std::string& conv, const std::string& norm, const Conv2d::Geometry& geometry,
                  Slicing slicing);
  at::Tensor convolved(const Stage& stage, const at::Tensor& input);
  at::Tensor run(const Stage& stage, const at::Tensor& input, const at::Tensor& residual, kernels::Then then,
                 const Context& context);

  bool downsamples_;
  Stage first_;
  Stage second_;
  TensorGroup* group_ = nullptr;  // null: not sliced
  Stage downsample_;              // without parameters unless downsamples_
};

}  // namespace dtrain::models
