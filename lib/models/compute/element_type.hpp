#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/device_kernels.hpp"

namespace dtrain::models {

/// What dtrain's kernels for devices call a tensor's type; nothing: they do not take it.
inline std::optional<kernels::Element> element_of(at::ScalarType type) {
  if (type == at::kFloat) return kernels::Element::float32;
  if (type == at::kBFloat16) return kernels::Element::bfloat16;
  if (type == at::kHalf) return kernels::Element::float16;
  return std::nullopt;
}

/// Calls `call` with a number of the type in which the CPU's kernels see `tensor`: float, double or bfloat16.
template <class Call>
auto with_stored_type(const at::Tensor& tensor, const Call& call) {
  if (tensor.scalar_type() == at::kDouble) return call(double());
  if (tensor.scalar_type() == at::kBFloat16) return call(kernels::Bfloat16());
  return call(float());
}

/// Its memory, as they take it, from an element on; null of an undefined one.
template <class S>
S* stored(const at::Tensor& tensor, std::int64_t offset = 0) {
  if (!tensor.defined()) return nullptr;
  if constexpr (std::is_const_v<S>) {
    return static_cast<S*>(tensor.const_data_ptr()) + offset;
  } else {
    return static_cast<S*>(tensor.data_ptr()) + offset;
  }
}

/// The fused kernels for what lies where `tensor` does; null: there are none.
inline const kernels::FusedKernels* fused_kernels_for(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return &kernels::fused_kernels_of_cpu();
  const auto* const kernels = kernels::device_kernels();
  return kernels != nullptr ? kernels->fused() : nullptr;
}

}  // namespace dtrain::models
