#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/device/cuda_module.hpp"
#include "comm/device/nccl/nccl_channel.hpp"
#include "comm/device/nccl/nccl_extras.hpp"
#include "comm/group.hpp"
#include "comm/label.hpp"

namespace dtrain::comm {

/// The collectives over NCCL, on buffers in the GPU's memory. An operation waits, on the GPU, for what the
/// compute stream held when it was submitted, and a follower of its handle lets that stream wait for it.
/// Messages to and from each neighbour have a communicator and a stream of their own, and are given to NCCL
/// one at a time, a receive when its message is with the peer's GPU (DeviceCall): one that has been posted
/// long before its message comes keeps none but later ones from there waiting.
class NcclGroup final : public Group {
 public:
  /// `extras`: what the loaded NCCL has of them; used where the request has something in common with others.
  explicit NcclGroup(const DeviceGroupRequest& request, const NcclExtras& extras = {});
  ~NcclGroup() override;

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  int world_rank_of(int group_rank) const override {
    return world_ranks_.at(static_cast<std::size_t>(group_rank));
  }

  /// Device memory, zero-filled; registered with NCCL, where the request had something in common.
  std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) override;
  bool registers_memory() const override { return extras_.registers(); }
  /// NCCL chooses the algorithm itself: `algorithm` is not used.
  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override;
  Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) override;
  Handle all_gather(Buffer input, Buffer output) override;
  Handle all_to_all(Buffer input, Buffer output) override;
  Handle broadcast(Buffer values, int root) override;
  Handle send(Buffer values, int to) override;
  Handle receive(Buffer values, int from) override;
  Handle barrier() override;

 private:
  /// Of the ring's neighbour `rank`: what this one sends it, and what it sends here.
  struct Neighbour {
    NcclChannel* out = nullptr;
    NcclChannel* in = nullptr;
    const Communicator* pair = nullptr;
    int rank_in_pair = 0;  // the neighbour's
  };
  using Pair = std::pair<int, int>;
  std::shared_ptr<NcclChannel> make_collectives(const DeviceGroupRequest& request) const;
  void meet(const std::vector<Pair>& pairs, const DeviceGroupRequest& request);
  Neighbour& neighbour(int rank);
  Label label(std::string_view operation, const Buffer& values, int peer = -1);
  Handle submit(const Label& label, NcclChannel& channel, NcclChannel::Call call, std::int64_t sent,
                std::int64_t received, const Neighbour* neighbour = nullptr);

  std::string name_;
  int rank_;
  std::vector<int> world_ranks_;
  std::uint64_t id_;
  Queue& queue_;
  std::shared_ptr<DeviceOrder> order_;  ///< Of all calls for the device, those of other groups too.
  cudaStream_t compute_;
  NcclExtras extras_;
  std::shared_ptr<NcclChannel> collectives_;
  std::vector<std::unique_ptr<Communicator>> pairs_;    ///< Of this rank and a neighbour each.
  std::vector<std::unique_ptr<NcclChannel>> channels_;  ///< To and from neighbours, as they were made.
  std::map<int, Neighbour> neighbours_;                 ///< By rank; empty where no messages are wanted.
  std::unique_ptr<SharedBuffer> token_;                 ///< What a barrier reduces.
  Traffic* traffic_;                                    ///< Null: messages are not counted.
  ByteCount* bytes_with_all_;                           ///< Null: collectives are not counted.
  std::uint64_t operations_ = 0;                        ///< Collectives: the same on all ranks.
  std::uint64_t messages_ = 0;
};

}  // namespace dtrain::comm
