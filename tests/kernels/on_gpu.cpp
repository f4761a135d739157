// The kernels of the CUDA module, on a GPU.
#include "comm/device/cuda_module.hpp"
#include "kernels/on_device.hpp"

namespace dtrain::kernels {

std::string why_not() {
  const std::string reason = comm::CudaModule::why_no_driver();
  if (!reason.empty()) return "no CUDA driver: " + reason;
  return comm::CudaModule().device_count() > 0 ? std::string() : "no GPU";
}

const DeviceKernels& kernels_of_device() {
  static const comm::CudaModule module;
  return *reinterpret_cast<DeviceKernelsEntry>(module.symbol("dtrain_device_kernels"))();
}

void change_order_of_blocks() {}  // a GPU chooses it

}  // namespace dtrain::kernels
