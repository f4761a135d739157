#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace dtrain::parallel {

class DeviceClock;

/// The way of batches into a device's memory: on a stream of its own, from memory that the device reads by
/// itself, so that neither the device's computing nor this thread waits for them.
class DeviceCopies {
 public:
  /// `clock`, borrowed: receives how long copies take; null: no times are taken.
  explicit DeviceCopies(at::Device device, DeviceClock* clock = nullptr);

  /// Memory of the CPU to be filled and then copied from: page-locked for GPUs.
  at::Tensor staging(at::IntArrayRef sizes, at::ScalarType type) const;

  /// Puts what `work` does into the stream for copies, which is current meanwhile, and returns what it has
  /// made: to be used by what the device is given to compute from then on.
  at::Tensor ahead(const std::function<at::Tensor()>& work) const;

  /// A copy of `values`, of this type, begun.
  at::Tensor copied(const at::Tensor& values, at::ScalarType type) const;

  void* stream() const;  ///< The stream's own handle, a cudaStream_t; null where there is none.

 private:
  at::Device device_;
  DeviceClock* clock_;
  std::optional<c10::Stream> stream_;  // empty for the CPU
};

}  // namespace dtrain::parallel
