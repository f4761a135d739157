#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// Whether winograd_conv is the faster way: a 3 x 3 convolution of stride 1 and padding 1 with enough
/// channels, channels last, float or double on the CPU.
bool fits_winograd(const at::Tensor& input, const at::Tensor& weight, const Conv2d::Geometry& geometry);

/// Of the multiplications of a convolution over images of this size, the share that is left.
double winograd_share(std::int64_t height, std::int64_t width);

/// Bytes of the weights in the form that the products take, whatever the machine; 0 as winograd_bytes().
double winograd_weight_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, std::int64_t height,
                             std::int64_t width);

/// Bytes that the transformed weights take for images of this size; 0 where a convolution of this geometry is
/// computed otherwise.
double winograd_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, std::int64_t height,
                      std::int64_t width);

/// Bytes of what its backward computes with, for `input` [N, C, H, W]; 0 as winograd_bytes().
double winograd_workspace_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry,
                                const Shape& input);

/// The convolution as one node of the graph by Winograd's F(4 x 4, 3 x 3), or F(2 x 2, 3 x 3) for images that
/// need fewer multiplications with it, forward and backward: 4 or 2.25 times fewer multiplications than the
/// definition (kernels/convolution/winograd.hpp), in matrix products per block of tiles that stays in the
/// caches. The weight's gradient is written into its slot where it has one. Shapes: `input` [N, C, H, W],
/// `weight` [K, C, 3, 3], `bias` [K] or null; the result [N, K, H, W] has its channels last. Not
/// differentiable twice. Both parameters must outlive the graph.
at::Tensor winograd_conv(const at::Tensor& input, Parameter& weight, Parameter* bias);

}  // namespace dtrain::models
