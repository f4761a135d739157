#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/algorithm_table.hpp"
#include "comm/collectives/hierarchical.hpp"
#include "comm/collectives/message_steps.hpp"
#include "comm/group.hpp"
#include "comm/label.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/queue.hpp"
#include "comm/shared_memory/segment.hpp"
#include "topology/mesh.hpp"

namespace dtrain::comm {

/// What an all_reduce does that is not told how.
struct AllReduceChoice {
  Algorithm algorithm = Algorithm::automatic;
  const AlgorithmTable* measured = nullptr;  ///< For automatic, in groups that span nodes; borrowed.
};

/// How messages of a group travel.
struct MessageWay {
  std::size_t piece_bytes = kLongestPiece;  ///< Longer messages go in several.
  LinkDelays* delays = nullptr;             ///< Of an emulated machine; null: there are none. Borrowed.
  Traffic* traffic = nullptr;               ///< Counts bytes by rank; null: none does. Borrowed.
};

/// Where the memory lies that a group has allocated.
class LastingMemory {
 public:
  void add(const void* data, std::size_t bytes) { bytes_at_[static_cast<const std::byte*>(data)] = bytes; }
  void remove(const void* data) { bytes_at_.erase(static_cast<const std::byte*>(data)); }
  bool holds(const void* data, std::size_t bytes) const;

 private:
  std::map<const std::byte*, std::size_t> bytes_at_;
};

/// The collectives over MPI and, among ranks of one node, over shared memory.
class MpiGroup final : public Group {
 public:
  /// `ranks` is this group's own communicator. `world_ranks` and `nodes` say, by group rank, which and where
  /// they are; a ring passes `order`'s neighbours. Collective over `ranks`. `queue` is borrowed.
  MpiGroup(std::string name, Communicator ranks, std::vector<int> world_ranks, const std::vector<int>& nodes,
           topology::RankOrder order, AllReduceChoice choice, Queue& queue, const MessageWay& way = {});

  const std::string& name() const override { return name_; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int world_rank_of(int group_rank) const override {
    return world_ranks_.at(static_cast<std::size_t>(group_rank));
  }

  NodePlace node_place() const override { return place_; }
  Group* on_device() override { return on_device_.get(); }
  void set_on_device(std::unique_ptr<Group> group) { on_device_ = std::move(group); }

  /// Which collectives the ranks of different nodes compare before they begin, as those of one node always
  /// do: calls that do not match would otherwise mix up data.
  enum class Compare { next, all };
  /// next: the 16 that come, as after construction. Collective over the group.
  void compare(Compare which);

  std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) override;
  std::unique_ptr<SharedBuffer> allocate_common(std::size_t bytes) override;
  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override;
  Handle all_reduce_encoded(Buffer values, Encoding& encoding) override;
  Range reduced_part(Buffer values, Algorithm algorithm) const override;
  Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) override;
  Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) override;
  Handle all_gather(Buffer input, Buffer output) override;
  Handle all_to_all(Buffer input, Buffer output) override;
  Handle broadcast(Buffer values, int root) override;
  Handle send(Buffer values, int to) override;
  Handle receive(Buffer values, int from) override;
  Handle barrier() override;

 private:
  static constexpr std::uint64_t kCompared = 16;
  using Steps = std::vector<std::unique_ptr<Step>>;

  bool on_one_node() const { return segment_ && segment_->size() == size(); }
  Algorithm choose(const Buffer& values, Algorithm algorithm) const;
  bool leaves_parts_in_node(const Buffer& values, Algorithm algorithm, const Descriptor& mine) const;
  void add_all_reduce_among(Steps& steps, const std::vector<int>& ranks, const Channel& channel,
                            Buffer values, ReduceOp op, Algorithm algorithm) const;
  /// Whether each rank of a node is to carry its own slice of `values`.
  bool goes_in_lanes(const Descriptor& mine, const Buffer& values) const;
  Crossing crossing(const Channel& channel, bool in_lanes) const;
  const std::vector<int>& lane() const { return lanes_[static_cast<std::size_t>(local_->rank())]; }
  /// Whether each node is to send and receive the whole of `values` once.
  bool goes_over_nodes(const Buffer& values) const;
  Party party(const std::vector<int>& ranks, const Channel& channel) const;
  Buffer lasting(Buffer values) const;
  Descriptor describe(OperationKind kind, const Buffer& values) const;
  Label next_label(std::string_view operation, const Buffer& values = {});
  Label message_label(std::string_view operation, const Buffer& values, int peer);
  Channel channel_of(const Label& label) const;
  Channel channel_of_messages() const;
  Steps compared(const Label& label, const Descriptor& mine) const;
  Handle submit(const Label& label, Steps steps);
  Handle submit(const Label& label, std::unique_ptr<Step> step);

  std::string name_;
  Communicator ranks_;
  std::vector<int> world_ranks_;
  std::uint64_t id_;
  std::vector<int>
      ring_order_;  ///< Group ranks; placed: node after node, so that a ring crosses each link once.
  std::vector<int> leaders_;  ///< The first group rank of each node, in ring order.
  std::vector<std::vector<int>>
      lanes_;  ///< By place in a node, the ranks of all nodes there; empty unless all have as many.
  bool nodes_share_ranks_ =
      false;  ///< Some node holds at least two of the group, and there are several nodes.
  NodePlace place_;
  std::optional<Communicator> local_;
  std::shared_ptr<Segment> segment_;  ///< Shared with its buffers.
  std::shared_ptr<LastingMemory> lasting_ = std::make_shared<LastingMemory>();
  std::vector<int> everyone_;
  AllReduceChoice choice_;
  Queue& queue_;
  MessageWay way_;
  ByteCount* bytes_with_all_;  ///< Null: none does.
  std::unique_ptr<Group> on_device_;
  std::uint64_t operations_ = 0;              ///< Collectives: the same on all ranks.
  std::uint64_t compared_until_ = kCompared;  ///< Of operations_.
  std::atomic<std::uint64_t> messages_ = 0;   ///< A thread that serves sends beside the one that computes.
};

}  // namespace dtrain::comm
