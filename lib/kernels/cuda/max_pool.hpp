#pragma once

#include <cuda_runtime_api.h>

#include "kernels/fused/fused_kernels.hpp"

namespace dtrain::kernels {

/// FusedKernels::max_pool() and max_pool_gradient() of a GPU: one kernel each.
void max_pool_on_gpu(void* out, std::uint8_t* which, const void* input, Element type, const PoolSize& size,
                     std::size_t inner, cudaStream_t stream);
void max_pool_gradient_on_gpu(void* input_gradient, const void* gradient, const std::uint8_t* which,
                              Element type, const PoolSize& size, std::size_t inner, cudaStream_t stream);

}  // namespace dtrain::kernels
