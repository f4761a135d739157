#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/encoding.hpp"
#include "comm/label.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/step.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// How a rank takes part in the exchange between the nodes of a group.
struct Crossing {
  /// Of its first message. A collective may use the kMostChunks tags from here.
  Channel channel;
  /// The ranks of the communicator that exchange the same elements, one per node; empty where this rank
  /// leaves it to another of its node.
  std::vector<int> ranks;
  int index = 0;  ///< ranks[index] is this rank.
  /// Each rank of a node carries its own slice, which takes as many ranks on each node and buffers from
  /// allocate(); else the first rank of each node carries everything.
  bool in_lanes = false;
};

constexpr std::size_t kMostChunks = 8;

/// All-reduce over nodes whose ranks share memory: reduced within each node, exchanged between the nodes by a
/// ring, or for few bytes a tree, and handed on within each node. Large buffers in chunks, so that the links
/// between the nodes do not wait for the memory within them. `segment` is this node's; null where only one
/// rank of the group is on it. `encoding`: how sums of float32 cross between the nodes; null: as they are.
std::unique_ptr<Step> make_hierarchical_all_reduce(Segment* segment, const Descriptor& mine,
                                                   const Crossing& crossing, Buffer values, ReduceOp op,
                                                   const Label& where, Encoding* encoding = nullptr);

}  // namespace dtrain::comm
