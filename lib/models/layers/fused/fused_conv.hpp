#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// A convolution in half precision with a bias, as at::conv2d(), for what takes_product_gradients(): in
/// backward the bias's gradient is one pass of sums in float, where it is collected. Shapes: `images` [N, C,
/// H, W]. Both parameters must outlive the graph. Not differentiable twice.
at::Tensor fused_conv(const at::Tensor& images, const Parameter& weight, const Parameter& bias,
                      const Conv2d::Geometry& geometry);

}  // namespace dtrain::models
