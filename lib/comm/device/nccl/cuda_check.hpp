#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string_view>

namespace dtrain::comm {

/// Throws Error with CUDA's own text. `call` names what was tried.
void check_cuda(cudaError_t code, std::string_view call);

/// The same for NCCL: a LibraryError, unless NCCL says that a peer is gone. ncclInProgress is no error: the
/// caller polls.
void check_nccl(ncclResult_t code, std::string_view call);

}  // namespace dtrain::comm
