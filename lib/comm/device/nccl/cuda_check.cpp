#include "comm/device/nccl/cuda_check.hpp"

#include <string>

#include "comm/mpi/mpi_check.hpp"
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
  if (code == ncclRemoteError) {
    throw Error(ncclGetErrorString(code),
                {.subject = std::string(call),
                 .advice = "look at the lost rank's own output; the same command goes on from the newest "
                           "checkpoint, if there is one",
                 .code = ExitCode::lost_rank});
  }
  throw LibraryError(ncclGetErrorString(code), {.subject = std::string(call),
                                                .advice = "run again with NCCL_DEBUG=INFO to see the cause"});
}

}  // namespace dtrain::comm
