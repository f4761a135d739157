#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/group.hpp"
#include "comm/queue.hpp"

namespace dtrain::comm {

/// What a group over NCCL is made from.
struct NcclGroupRequest {
  std::string name;
  const Communicator* ranks =
      nullptr;  ///< The group's ranks, over which the id travels. Borrowed for the call.
  std::vector<int> world_ranks;
  Queue* queue = nullptr;       ///< Outlives the group.
  int device = 0;               ///< CUDA's index of this rank's GPU.
  bool point_to_point = false;  ///< send and receive need two communicators more.
  double timeout_s = 300;       ///< Longest that making it may take.
};

/// Versions as text, `2.28.9`: of the headers that the module was compiled with, and of what it has loaded.
struct CudaLibraries {
  std::string problem;  ///< Why the module could not be opened; then nothing else is known.
  std::string nccl_built;
  std::string nccl_loaded;
  std::string runtime_built;
  std::string runtime_loaded;
  std::string driver;  ///< The newest CUDA that the driver knows; empty without a driver.
};

/// The shared module with everything of CUDA. It is opened only when a GPU is asked for, because a process
/// that links CUDA's libraries takes four times the memory of one that does not.
class CudaModule {
 public:
  /// Opens `path` (empty: libdtrain_cuda.so beside the program, in ../lib, or where the loader looks).
  /// Throws Error (exit code 2) that says what is missing: the driver, the module, or a libnccl of the
  /// version it was built with.
  explicit CudaModule(const std::string& path = {});
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  /// Empty when the driver is there; otherwise why no GPU can be used.
  static std::string why_no_driver();

  /// Looks at the module's libraries, without a GPU or a driver too. It stays open.
  static CudaLibraries libraries(const std::string& path = {});

  std::string nccl_description() const;  ///< `nccl 2.28.9 (/path/libnccl.so.2)`.
  int device_count() const;              ///< GPUs that this process sees.
  /// Theirs, as NVML has them (`GPU-5f...`), in CUDA's order. Throws Error where CUDA cannot tell.
  std::vector<std::string> device_uuids() const;

  /// The address of one of the module's functions, such as `dtrain_device_kernels`.
  /// Throws Error (exit code 2) where it has none of that name.
  void* symbol(const char* name) const;

  /// Collective over the request's ranks. The module must outlive the group.
  std::unique_ptr<Group> make_nccl_group(const NcclGroupRequest& request) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace dtrain::comm
