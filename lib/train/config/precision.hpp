#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "models/compute/kernel_scope.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// The type of parameters, gradients and optimizer state: double for `fp64`, otherwise float.
inline c10::ScalarType full_type(const RunConfig& config) {
  return config.precision == "fp64" ? c10::kDouble : c10::kFloat;
}

/// What products are computed in under mixed precision; none for `fp32` and `fp64`.
inline std::optional<c10::ScalarType> half_type(const RunConfig& config) {
  if (config.precision == "bf16") return c10::kBFloat16;
  if (config.precision == "fp16") return c10::kHalf;
  return std::nullopt;
}

/// Whether a device multiplies fp32 by TF32: `on` or `off`; empty: no device multiplies fp32.
inline std::string tf32_of(const RunConfig& config) {
  if (!config.computes_on_device() || config.precision != "fp32") return {};
  return config.tf32 ? "on" : "off";
}

/// What layers compute with. `auto`: on a GPU in half precision the kernels that join operations, which are
/// not `--reproducible`'s; else dtrain's own.
inline models::Kernels kernels_of(const RunConfig& config) {
  const bool gains = config.device == "cuda" && half_type(config).has_value() && !config.reproducible;
  if (config.kernels == "fused" || (config.kernels == "auto" && gains)) return models::Kernels::fused;
  return config.kernels == "libtorch" ? models::Kernels::libtorch : models::Kernels::own;
}

}  // namespace dtrain::train
