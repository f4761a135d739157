#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/device_kernels.hpp"

namespace dtrain::models {

/// What dtrain's kernels for devices call a tensor's type; nothing: they do not take it.
inline std::optional<kernels::Element> element_of(at::ScalarType type) {
  if (type == at::kFloat) return kernels::Element::float32;
  if (type == at::kBFloat16) return kernels::Element::bfloat16;
  if (type == at::kHalf) return kernels::Element::float16;
  return std::nullopt;
}

/// The fused kernels for what lies where `tensor` does; null: there are none.
inline const kernels::FusedKernels* fused_kernels_for(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return &kernels::fused_kernels_of_cpu();
  const auto* const kernels = kernels::device_kernels();
  return kernels != nullptr ? kernels->fused() : nullptr;
}

}  // namespace dtrain::models
