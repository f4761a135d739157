#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/device_kernels.hpp"
#include "kernels/rounded.hpp"

namespace dtrain::kernels {

// Two programs run these tests: on a GPU (on_gpu.cpp), and with the same kernels compiled for the CPU
// (on_cpu.cpp).

/// Why there is no device to run kernels on; empty when there is one.
std::string why_not();
const DeviceKernels& kernels_of_device();
/// From now on blocks run in another order, where the order can be chosen.
void change_order_of_blocks();

/// `values` in the device's memory, `offset` elements behind an aligned place.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values, std::size_t offset = 0)
      : count_(values.size()), offset_(offset) {
    cudaMalloc(&memory_, (offset + count_) * sizeof(T));
    cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice);
  }
  explicit OnDevice(std::size_t count, std::size_t offset = 0) : OnDevice(std::vector<T>(count), offset) {}
  ~OnDevice() { EXPECT_EQ(cudaFree(memory_), cudaSuccess) << "something was written beside it"; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return static_cast<T*>(memory_) + offset_; }
  std::vector<T> values() const {
    std::vector<T> back(count_);
    EXPECT_EQ(cudaMemcpy(back.data(), data(), bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return back;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  std::size_t offset_;
  void* memory_ = nullptr;
};

/// Between -2 and 2, without a pattern of a power of two.
inline std::vector<float> numbers(std::size_t n, std::size_t seed) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>((i + seed) * 7919 % 20011) / 5003.0F - 2.0F;
  return values;
}

/// Relative to what is wanted, and to 1 where that is small; of half precision the last bit may differ, too.
template <class T>
void expect_near(const std::vector<T>& found, const std::vector<T>& wanted, float tolerance) {
  const float last_bit = std::is_same_v<T, Bfloat16> ? 0x1p-7F : std::is_same_v<T, Float16> ? 0x1p-10F : 0.0F;
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float near = to_float(wanted[i]);
    ASSERT_NEAR(to_float(found[i]), near, last_bit * std::abs(near) + tolerance * (1.0F + std::abs(near)))
        << i;
  }
}

template <class T>
std::vector<std::uint32_t> bits_of_all(const std::vector<T>& values) {
  std::vector<std::uint32_t> bits;
  for (const T value : values) bits.push_back(bits_of(to_float(value)));
  return bits;
}

/// Skipped with the reason where there is no device.
class DeviceKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = why_not();
    if (!reason.empty()) GTEST_SKIP() << reason;
    kernels_ = &kernels_of_device();
  }

  const FusedKernels& gpu() const { return *kernels_->fused(); }

  const DeviceKernels* kernels_ = nullptr;
  const FusedKernels& cpu_ = fused_kernels_of_cpu();
};

}  // namespace dtrain::kernels
