#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/device/device_transport.hpp"
#include "comm/group.hpp"

namespace dtrain::comm {

/// Versions as text, `2.28.9`: of the headers that the module was compiled with, and of what it has loaded.
struct CudaLibraries {
  std::string problem;  ///< Why the module could not be opened; then nothing else is known.
  std::string nccl_built;
  std::string nccl_loaded;
  std::string runtime_built;
  std::string runtime_loaded;
  std::string driver;  ///< The newest CUDA that the driver knows; empty without a driver.
};

/// Of a GPU, at one moment; nothing is left where CUDA cannot even start there.
struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

/// The shared module with everything of CUDA. It is opened only when a GPU is asked for, because a process
/// that links CUDA's libraries takes four times the memory of one that does not. Its transport is NCCL.
class CudaModule final : public DeviceTransport {
 public:
  /// Opens `path` (empty: libdtrain_cuda.so beside the program, in ../lib, or where the loader looks).
  /// Throws Error (exit code 2) that says what is missing: the driver, the module, or a libnccl of the
  /// version it was built with.
  explicit CudaModule(const std::string& path = {});
  ~CudaModule() override;
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Empty when the driver is there; otherwise why no GPU can be used.
  static std::string why_no_driver();

  /// Looks at the module's libraries, without a GPU or a driver too. It stays open.
  static CudaLibraries libraries(const std::string& path = {});

  std::string description() const override;
  bool lets_ranks_share_devices() const override;  ///< NCCL does from 2.30 on.
  std::unique_ptr<Group> make_group(const DeviceGroupRequest& request) const override;

  int device_count() const;               ///< GPUs that this process sees.
  std::string device_problem() const;     ///< Why it sees none, as a too old driver; empty: it does.
  DeviceMemory memory(int device) const;  ///< Makes it the current one.
  /// Theirs, as NVML has them (`GPU-5f...`), in CUDA's order. Throws Error where CUDA cannot tell.
  std::vector<std::string> device_uuids() const;
  std::string device_bus(int device) const;  ///< Of its card on the PCI bus; empty where CUDA cannot tell.

  /// The address of one of the module's functions, such as `dtrain_device_kernels`.
  /// Throws Error (exit code 2) where it has none of that name.
  void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace dtrain::comm
