#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <functional>

#include "comm/mpi/communicator.hpp"

namespace dtrain::comm {

/// One NCCL communicator with the stream its operations run on, in order of their tickets. Non-blocking:
/// nothing here waits for a peer except the constructor, which has a limit.
class NcclChannel {
 public:
  /// The id is made by rank 0 and travels over MPI. Collective over `ranks`. Throws Error.
  NcclChannel(const Communicator& ranks, int device, double timeout_s);
  /// Finishes in order; aborts after a failure, while an exception unwinds, and where that takes too long.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  std::uint64_t take_ticket() { return next_ticket_++; }

  /// Issues `call` once all earlier tickets are issued; true when it is on the stream. Throws Error.
  bool issue(std::uint64_t ticket, const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& call);

  /// Throws Error and aborts the communicator when a peer or a link has failed.
  void check_peers();

  /// Ends what the GPU waits for here: no rank will ever send it.
  void abort() noexcept;

  cudaStream_t stream() const { return stream_; }
  int device() const { return device_; }

 private:
  bool settled();
  bool finish() noexcept;

  int device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t issuing_ = 0;  ///< The ticket whose turn it is.
  bool called_ = false;        ///< Its call was made and may still be settling.
};

}  // namespace dtrain::comm
