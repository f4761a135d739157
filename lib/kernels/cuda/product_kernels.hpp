#pragma once

#include "kernels/fused/product_kernels.hpp"

namespace dtrain::kernels {

/// Those of a GPU, by cublasLt: see DeviceKernels::products().
const ProductKernels& product_kernels_of_gpu();

}  // namespace dtrain::kernels
