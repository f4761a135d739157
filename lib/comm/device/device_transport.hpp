#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/device/device_order.hpp"
#include "comm/group.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/queue.hpp"
#include "comm/traffic.hpp"

namespace dtrain::comm {

/// What a transport keeps for all groups of a job.
class DeviceRoot {
 public:
  virtual ~DeviceRoot() = default;
};

/// One set-up for all groups of a job on devices: their communicators are parts of one, and what they move
/// lies in memory that the transport knows. Where a transport lacks that, each group is set up by itself.
struct CommonSetUp {
  const Communicator& job;            ///< All ranks, which all make a group of the same size now.
  int color = 0;                      ///< Of this rank's group among these.
  std::shared_ptr<DeviceRoot>& root;  ///< Made with the first group; outlives all.
};

/// What a group whose buffers lie in devices' memory is made from.
struct DeviceGroupRequest {
  std::string name;
  const Communicator* ranks = nullptr;  ///< The group's, over which it is set up. Borrowed for the call.
  std::vector<int> world_ranks;
  Queue* queue = nullptr;         ///< Outlives the group.
  int device = 0;                 ///< LibTorch's index of the one that this rank computes on.
  void* stream = nullptr;         ///< In which it computes, a cudaStream_t; null: the legacy default stream.
  bool messages = false;          ///< Whether neighbours on the group's ring send each other messages, too.
  bool shares_devices = false;    ///< Some device serves several of the job's ranks.
  double timeout_s = 300;         ///< Longest that making it may take.
  CommonSetUp* common = nullptr;  ///< Null: this group is set up by itself. Borrowed for the call.
  std::shared_ptr<DeviceOrder> order;  ///< Of all groups on this device; null: the group has one of its own.
  Traffic* traffic =
      nullptr;  ///< Counts messages by rank, as the next does what goes to all; null: none does.
  ByteCount* bytes_with_all = nullptr;  ///< Both outlive the group.
};

/// Carries what ranks exchange from the memory of one's device to another's, past the CPU's. NCCL is one.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  virtual std::string description() const = 0;        ///< `nccl 2.28.9 (/path/libnccl.so.2)`.
  virtual bool lets_ranks_share_devices() const = 0;  ///< Whether several ranks may use one device.
  /// Collective over the request's ranks. This transport must outlive the group. Throws Error.
  virtual std::unique_ptr<Group> make_group(const DeviceGroupRequest& request) const = 0;
};

}  // namespace dtrain::comm
