#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fused/fused_kernels.hpp"

namespace dtrain::kernels {

/// FusedKernels::token_loss(), token_loss_gradient() and token_loss_with_gradient() of a GPU: one kernel
/// each.
void token_loss_on_gpu(float* losses, float* log_sums, const void* logits, Element type,
                       const std::int64_t* targets, const TokenRows& rows, cudaStream_t stream);
void token_loss_gradient_on_gpu(void* logits, Element type, const float* log_sums,
                                const std::int64_t* targets, const float* factor, const TokenRows& rows,
                                cudaStream_t stream);
void token_loss_with_gradient_on_gpu(float* losses, void* logits, Element type, const std::int64_t* targets,
                                     const TokenRows& rows, cudaStream_t stream);

}  // namespace dtrain::kernels
