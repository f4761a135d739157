#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// Whether fused_max_pool() takes `images`: fused kernels are on (KernelScope), there are some for their
/// memory and type, and channels are last. What the CPU's own kernels take is left to them.
bool takes_fused_max_pool(const at::Tensor& images);

/// The maxima of windows of 2 x 2, moved by 2: [N, C, H, W] to [N, C, H / 2, W / 2], channels last; an odd
/// last row or column is left out. Keeps a byte for each. As at::max_pool2d(): the first of equals, a NaN
/// wins.
at::Tensor fused_max_pool(const at::Tensor& images);

}  // namespace dtrain::models
