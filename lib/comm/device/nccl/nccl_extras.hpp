#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>

namespace dtrain::comm {

/// Functions that not every NCCL has: looked up by name in the one that was loaded. Null: it lacks them.
struct NcclExtras {
  using Split = ncclResult_t (*)(ncclComm_t, int color, int key, ncclComm_t* child, ncclConfig_t*);
  using Allocate = ncclResult_t (*)(void** memory, std::size_t bytes);
  using Free = ncclResult_t (*)(void* memory);
  using Register = ncclResult_t (*)(ncclComm_t, void* memory, std::size_t bytes, void** handle);
  using Deregister = ncclResult_t (*)(ncclComm_t, void* handle);

  Split split = nullptr;  ///< From NCCL 2.18 on.
  // From 2.19 on.
  Allocate allocate = nullptr;
  Free free = nullptr;
  Register register_memory = nullptr;
  Deregister deregister_memory = nullptr;

  bool registers() const {
    return allocate != nullptr && free != nullptr && register_memory != nullptr &&
           deregister_memory != nullptr;
  }

  /// `symbol` gives the address of a function, or null.
  static NcclExtras found_by(const std::function<void*(const char* name)>& symbol);
};

}  // namespace dtrain::comm
