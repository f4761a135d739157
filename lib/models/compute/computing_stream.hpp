#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dtrain::models {

/// The stream into which this thread puts what `device` is to compute, as kernels take it: a cudaStream_t;
/// null where the device has no such thing.
inline void* computing_stream(c10::Device device) {
  return device.is_cuda() ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle()
                          : nullptr;
}

}  // namespace dtrain::models
