#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/cuda_module.hpp"
#include "comm/group.hpp"
#include "comm/label.hpp"
#include "comm/nccl/nccl_channel.hpp"

namespace dtrain::comm {

/// The collectives over NCCL, on buffers in the GPU's memory. An operation waits, on the GPU, for what the
/// legacy default stream held when it was submitted; whoever uses its result has waited for the handle.
/// Messages to higher and to lower ranks have a communicator each, so that a pipeline's two directions cannot
/// block one another.
class NcclGroup final : public Group {
 public:
  explicit NcclGroup(const NcclGroupRequest& request);

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  int world_rank_of(int group_rank) const override {
    return world_ranks_.at(static_cast<std::size_t>(group_rank));
  }

  /// Device memory, zero-filled.
  std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) override;
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
  using Call = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;
  Handle submit(std::string_view operation, NcclChannel& channel, Call call, std::int64_t sent,
                std::int64_t received);
  NcclChannel& channel_between(int from, int to);

  std::string name_;
  int rank_;
  std::vector<int> world_ranks_;
  Queue& queue_;
  NcclChannel collectives_;
  std::unique_ptr<NcclChannel> upward_;  ///< From lower to higher ranks; empty without point-to-point.
  std::unique_ptr<NcclChannel> downward_;
  std::unique_ptr<SharedBuffer> token_;  ///< What a barrier reduces.
  std::uint64_t operations_ = 0;
};

}  // namespace dtrain::comm
