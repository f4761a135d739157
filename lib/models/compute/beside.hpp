#pragma once

#include <ATen/core/Tensor.h>

namespace dtrain::models {

/// `values`, undefined ones too, where `other` lies. From the CPU a copy goes into the device's stream:
/// no thread waits for it, and memory of the CPU that is not page-locked may be used again at once.
inline at::Tensor beside(const at::Tensor& values, const at::Tensor& other) {
  return values.defined() ? values.to(other.device(), /*non_blocking=*/values.is_cpu()) : values;
}

}  // namespace dtrain::models
