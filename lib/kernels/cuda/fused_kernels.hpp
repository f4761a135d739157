#pragma once

#include "kernels/fused/fused_kernels.hpp"

namespace dtrain::kernels {

/// Those of a GPU: see DeviceKernels::fused().
const FusedKernels& fused_kernels_of_gpu();

}  // namespace dtrain::kernels
