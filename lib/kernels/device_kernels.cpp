#include "kernels/device_kernels.hpp"

namespace dtrain::kernels {
namespace {

const DeviceKernels* in_use = nullptr;

}  // namespace

const DeviceKernels* device_kernels() { return in_use; }

void use_device_kernels(const DeviceKernels* kernels) { in_use = kernels; }

}  // namespace dtrain::kernels
