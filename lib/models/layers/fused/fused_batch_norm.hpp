#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/batch_norm.hpp"

namespace dtrain::models {

/// Whether fused_batch_norm() takes `x`: fused kernels are on (KernelScope), and there are some for its
/// memory and its type, fp32 or half precision. What the CPU's own kernels take is left to them.
bool takes_fused_batch_norm(const at::Tensor& x, const Parameter& weight);

/// As batch_norm() in training, a few kernels for the statistics, the scaling, the residual and the ReLU, and
/// as many in backward; all sums in double. `x` and `residual` channels last and dense. The moments join the
/// step's sums of `mean` and `variance` in the first pass.
at::Tensor fused_batch_norm(const at::Tensor& x, const at::Tensor& residual, kernels::Then then,
                            const Parameter& weight, const Parameter& bias, Buffer& mean, Buffer& variance,
                            double epsilon, const Context& context);

}  // namespace dtrain::models
