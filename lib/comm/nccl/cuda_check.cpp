#include "comm/nccl/cuda_check.hpp"

#include <string>

#include "core/error.hpp"

namespace dtrain::comm {

void check_cuda(cudaError_t code, std::string_view call) {
  if (code == cudaSuccess) return;
  throw Error(cudaGetErrorString(code),
              {.subject = std::string(call),
               .advice = "look at nvidia-smi and the kernel log for errors of the GPU"});
}

void check_nccl(ncclResult_t code, std::string_view call) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const bool peer_is_gone = code == ncclRemoteError;
  throw Error(ncclGetErrorString(code),
              {.subject = std::string(call),
               .advice = peer_is_gone ? "look at the lost rank's own output; the same command goes on from "
                                        "the newest checkpoint, if there is one"
                                      : "run again with NCCL_DEBUG=INFO to see the cause",
               .code = peer_is_gone ? ExitCode::lost_rank : ExitCode::failure});
}

}  // namespace dtrain::comm
