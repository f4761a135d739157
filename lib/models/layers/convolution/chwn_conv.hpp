#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "models/compute/direct_pass.hpp"
#include "models/layers/convolution/conv2d.hpp"

namespace dtrain::models {

/// Images [N, C, H, W] that lie in memory as [C, H, W, N] (CHWN), the image innermost: the layout of layers
/// with few channels (kernels/convolution/chwn_conv.hpp). It is one of strides only: all layers take such
/// images, and these here give them.
bool is_chwn(const at::Tensor& images);

at::Tensor empty_chwn(at::IntArrayRef shape, const at::TensorOptions& options);
/// kept_memory() in that layout.
at::Tensor& kept_chwn(at::Tensor& kept, at::IntArrayRef shape, const at::TensorOptions& options);

/// The same values in that layout; `images` itself where it lies so. Not recorded for backward.
at::Tensor as_chwn(const at::Tensor& images);
/// The same values in the usual layout, image after image; `images` itself where it lies so. Differentiable.
at::Tensor as_nchw(const at::Tensor& images);

/// Whether the two below take this: float or double on the CPU, and with a stride enough images to fill a
/// vector.
bool fits_chwn_conv(const at::Tensor& input, const at::Tensor& weight, const Conv2d::Geometry& geometry);
/// The same for so many images, where the tensors are such.
bool fits_chwn_conv(std::int64_t images, const Conv2d::Geometry& geometry);

/// A convolution of images that lie as CHWN, or are brought to it, and the result does. The weight's gradient
/// goes into its slot where there is one. Shapes: `input` [N, C, H, W], `weight` [K, C, k, k], `bias` [K] or
/// null. Not differentiable twice. Both parameters must outlive the graph.
at::Tensor chwn_conv(const at::Tensor& input, Parameter& weight, Parameter* bias,
                     const Conv2d::Geometry& geometry);

/// The transposed convolution in the same manner. Shapes: `input` [N, C, H, W], `weight` [C, K, k, k], `bias`
/// [K].
at::Tensor chwn_conv_transpose(const at::Tensor& input, Parameter& weight, Parameter& bias,
                               const Conv2d::Geometry& geometry);

/// Both without a graph; they fit where fits_chwn_conv() does.
std::unique_ptr<DirectPass> direct_chwn_conv(Parameter& weight, Parameter* bias,
                                             const Conv2d::Geometry& geometry);
std::unique_ptr<DirectPass> direct_chwn_conv_transpose(Parameter& weight, Parameter& bias,
                                                       const Conv2d::Geometry& geometry);

}  // namespace dtrain::models
