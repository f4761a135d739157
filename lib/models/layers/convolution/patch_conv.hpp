#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// Whether patch_conv() and patch_conv_transpose() are the faster way: few channels, channels last, float or
/// double on the CPU.
bool fits_patch_conv(const at::Tensor& input, const at::Tensor& weight);

/// Bytes of what backward gathers or scatters at a time, with the larger side's images of shape `large` and
/// the smaller one's `small`, both [N, C, H, W].
double patch_workspace_bytes(const at::Tensor& weight, const Conv2d::Geometry& geometry, const Shape& large,
                             const Shape& small);

/// A convolution whose gradients are products of matrices over gathered windows (im2col), which pays for few
/// channels: LibTorch's kernels are made for many. Gradients of the weights go into their slots where there
/// are. Shapes: `input` [N, C, H, W], `weight` [K, C, k, k], `bias` [K] or null; the result has its channels
/// last. Not differentiable twice. Both parameters must outlive the graph.
at::Tensor patch_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                      const Conv2d::Geometry& geometry);

/// Whether the next one is the faster way: products in half precision that the processor multiplies in tiles,
/// channels last, and a large weight.
bool fits_half_patch_conv(const at::Tensor& input, const at::Tensor& weight);

/// The same in half precision, forward too, which pays for large weights on processors with AMX. The weight's
/// gradient is in full precision. Shapes as of patch_conv().
at::Tensor half_patch_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                           const Conv2d::Geometry& geometry);

/// The transposed convolution, forward and backward in the same manner. Shapes: `input` [N, C, H, W],
/// `weight` [C, K, k, k], `bias` [K].
at::Tensor patch_conv_transpose(const at::Tensor& input, Parameter& weight, Parameter& bias,
                                const Conv2d::Geometry& geometry);

}  // namespace dtrain::models
