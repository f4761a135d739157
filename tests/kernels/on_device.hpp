#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/device/cuda_module.hpp"
#include "kernels/device_kernels.hpp"

namespace dtrain::kernels {

/// Why there is no GPU to run kernels on; empty when there is one.
inline std::string why_not() {
  const std::string reason = comm::CudaModule::why_no_driver();
  if (!reason.empty()) return "no CUDA driver: " + reason;
  return comm::CudaModule().device_count() > 0 ? std::string() : "no GPU";
}

/// `values` in the GPU's memory.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    cudaMalloc(&memory_, bytes());
    cudaMemcpy(memory_, values.data(), bytes(), cudaMemcpyHostToDevice);
  }
  explicit OnDevice(std::size_t count) : OnDevice(std::vector<T>(count)) {}
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return static_cast<T*>(memory_); }
  std::vector<T> values() const {
    std::vector<T> back(count_);
    EXPECT_EQ(cudaMemcpy(back.data(), memory_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return back;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  void* memory_ = nullptr;
};

/// Skipped with the reason where there is no GPU.
class DeviceKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_not();
    if (!reason.empty()) GTEST_SKIP() << reason;
    module_ = std::make_unique<comm::CudaModule>();
    kernels_ = reinterpret_cast<DeviceKernelsEntry>(module_->symbol("dtrain_device_kernels"))();
  }

  std::unique_ptr<comm::CudaModule> module_;
  const DeviceKernels* kernels_ = nullptr;
};

}  // namespace dtrain::kernels
