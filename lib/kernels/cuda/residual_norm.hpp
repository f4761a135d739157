#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fused/fused_kernels.hpp"

namespace dtrain::kernels {

/// FusedKernels::residual_norm() and residual_norm_gradient() of a GPU.
void residual_norm_on_gpu(float* sum, void* normed, Element type, float* means, float* deviations,
                          const float* input, const void* branch, Element branch_type, const float* weight,
                          const float* bias, const NormRows& rows, cudaStream_t stream);
void residual_norm_gradient_on_gpu(const NormGradients& to, const float* passed, const void* of_normed,
                                   Element type, const float* sum, const float* weight, const float* means,
                                   const float* deviations, const NormRows& rows, cudaStream_t stream);

}  // namespace dtrain::kernels
