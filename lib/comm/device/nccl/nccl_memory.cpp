#include "comm/device/nccl/nccl_memory.hpp"

#include <fmt/core.h>

#include <thread>

#include "comm/device/nccl/cuda_check.hpp"
#include "comm/device/nccl/cuda_event.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

class DeviceBuffer final : public SharedBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMalloc(&data_, bytes), fmt::format("cudaMalloc of {} bytes", bytes));
    check_cuda(cudaMemset(data_, 0, bytes), "cudaMemset");
    check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemset");  // other streams do not wait for it
  }
  ~DeviceBuffer() override { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

class RegisteredBuffer final : public SharedBuffer {
 public:
  RegisteredBuffer(std::size_t bytes, const NcclExtras& extras, const std::shared_ptr<NcclChannel>& channel,
                   cudaStream_t compute)
      : bytes_(bytes),
        extras_(extras),
        device_(channel->device()),
        channel_(channel),
        compute_(compute),
        memory_(allocate(extras, bytes), extras.free) {
    if (bytes == 0) return;
    check_cuda(cudaMemset(data(), 0, bytes), "cudaMemset");
    check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemset");  // other streams do not wait for it
    registered_ = channel->register_memory(extras, data(), bytes);
  }
  ~RegisteredBuffer() override {
    const auto channel = channel_.lock();
    cudaSetDevice(device_);  // the thread that ends the last use may be another than the maker
    // ncclMemFree, unlike cudaFree, need not wait for kernels that still use the memory. One that waits for a
    // lost peer never ends: the memory is left to it.
    const double limit_s = steady_s() + kLongestUse_s;
    if (!is_done(compute_, limit_s) || (channel != nullptr && !is_done(channel->stream(), limit_s))) {
      memory_.release();
      return;
    }
    if (channel != nullptr) channel->deregister_memory(extras_, registered_);
  }
  RegisteredBuffer(const RegisteredBuffer&) = delete;
  RegisteredBuffer& operator=(const RegisteredBuffer&) = delete;
  void* data() override { return memory_.get(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  static constexpr double kLongestUse_s = 10;

  /// What the stream was given up to here.
  static bool is_done(cudaStream_t stream, double limit_s) noexcept {
    try {
      CudaEvent here;
      here.record(stream);
      while (!here.passed()) {
        if (steady_s() > limit_s) return false;
        std::this_thread::yield();
      }
    } catch (const Error&) {  // a GPU that has failed does nothing any more
    }
    return true;
  }

  static void* allocate(const NcclExtras& extras, std::size_t bytes) {
    void* memory = nullptr;
    if (bytes > 0)
      check_nccl(extras.allocate(&memory, bytes), fmt::format("ncclMemAlloc of {} bytes", bytes));
    return memory;
  }

  std::size_t bytes_;
  NcclExtras extras_;
  int device_;
  std::weak_ptr<NcclChannel> channel_;  // which may be gone before: then nothing is registered any more
  cudaStream_t compute_;
  std::unique_ptr<void, NcclExtras::Free> memory_;
  void* registered_ = nullptr;
};

}  // namespace

std::unique_ptr<SharedBuffer> device_memory(std::size_t bytes) {
  return std::make_unique<DeviceBuffer>(bytes);
}

std::unique_ptr<SharedBuffer> registered_memory(std::size_t bytes, const NcclExtras& extras,
                                                const std::shared_ptr<NcclChannel>& channel,
                                                cudaStream_t compute) {
  return std::make_unique<RegisteredBuffer>(bytes, extras, channel, compute);
}

}  // namespace dtrain::comm
