#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "comm/device/device_order.hpp"
#include "comm/device/nccl/nccl_extras.hpp"
#include "comm/mpi/communicator.hpp"

namespace dtrain::comm {

/// One NCCL communicator with the stream its operations run on, in order of their places among all calls for
/// the device. Non-blocking: nothing here waits for a peer except the constructor and connect(), which have a
/// limit.
class NcclChannel {
 public:
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  /// Whether what is split from it uses its connections and threads as well. Kernels of communicators that
  /// share these run one after another: for collectives, which all ranks submit in one order.
  enum class Splits { apart, shared };
  /// The id is made by rank 0 and travels over MPI. Collective over `ranks`. Throws Error.
  NcclChannel(const Communicator& ranks, int device, double timeout_s, Splits splits = Splits::apart);
  /// Finishes in order; aborts after a failure, while an exception unwinds, and where that takes too long.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  /// One of the ranks with the same `color`, in the order of `key`.
  /// Collective over `ranks`, those of the constructor, while nothing else is under way here. Throws Error.
  std::unique_ptr<NcclChannel> split(NcclExtras::Split call, const Communicator& ranks, int color, int key,
                                     double timeout_s);

  /// Lets NCCL move what lies in `memory`, of NcclExtras::allocate(), without copies of its own, where links
  /// allow that. Returns what deregister_memory() takes, which must come before the memory's end. Throws
  /// Error.
  void* register_memory(const NcclExtras& extras, void* memory, std::size_t bytes);
  void deregister_memory(const NcclExtras& extras, void* registered) noexcept;

  /// The first use, which connects the peers: later calls wait for none of them before they are on the
  /// stream. Collective over `ranks`, those of the constructor. Throws Error.
  void connect(const Communicator& ranks, const Call& call, double timeout_s);

  /// Issues `call` in its `turn`, which is over then; true when it is on the stream. Throws Error.
  bool issue(DeviceCall& turn, const Call& call);

  /// Throws Error and aborts the communicator when a peer or a link has failed.
  void check_peers();

  /// Ends what the GPU waits for here: no rank will ever send it.
  void abort() noexcept;

  /// Of the messages on it, where it carries messages.
  const std::shared_ptr<DeviceOrder>& way() const { return way_; }
  cudaStream_t stream() const { return stream_; }
  int device() const { return device_; }

 private:
  NcclChannel(ncclComm_t comm, int device);  ///< Takes ownership.
  void make_stream();
  bool settled();
  void set_up(const Communicator& ranks, const std::function<void()>& step);
  void await_settled(const Communicator& ranks, double timeout_s, const char* what);
  bool finish() noexcept;

  int device_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<DeviceOrder> way_ = std::make_shared<DeviceOrder>(0.0);
  bool called_ = false;  ///< The call whose turn it is was made, and may still be settling.
};

}  // namespace dtrain::comm
