#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "kernels/fused/fused_kernels.hpp"
#include "kernels/fused/product_kernels.hpp"

namespace dtrain::kernels {

/// What `partial` [parts, 2, width] adds up to over its parts: `sums[0]` and `sums[1]` [width] each.
void join_parts_on_gpu(const std::array<float*, 2>& sums, const float* partial, std::size_t parts,
                       std::size_t width, cudaStream_t stream);

/// FusedKernels::column_sums() of a GPU.
void column_sums_on_gpu(float* sums, float* partial, const void* values, Element type, std::size_t rows,
                        std::size_t columns, cudaStream_t stream);

/// `gradient` [rows, inner], that behind the GELU, becomes that before it: times gelu'(before). `of_bias`
/// [inner]: its sum over the rows. Types and memory as ProductKernels::gelu_gradient(), for sizes and
/// pointers that takes_epilogue().
void gelu_gradient_on_gpu(void* gradient, float* of_bias, const void* before, Element type,
                          const InnerProduct& of, void* workspace, cudaStream_t stream);

}  // namespace dtrain::kernels
