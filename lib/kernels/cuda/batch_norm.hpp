#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fused/fused_kernels.hpp"

namespace dtrain::kernels {

/// FusedKernels::batch_norm() and batch_norm_gradient() of a GPU: three kernels each.
void batch_norm_on_gpu(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                       const StepMoments& step, cudaStream_t stream);
void batch_norm_gradient_on_gpu(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                                cudaStream_t stream);

}  // namespace dtrain::kernels
