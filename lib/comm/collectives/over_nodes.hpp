#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/label.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/step.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// Ranks of nodes that have as many of a group each. A lane has one rank of each node.
struct NodeLanes {
  /// Group ranks, by place within a node and by node.
  std::vector<std::vector<int>> ranks;
  Party own;  ///< The lane of this rank.
};

/// Below, the messages of all ranks to all others cost less than the steps within a node.
constexpr std::size_t kLeastOverNodes = std::size_t{32} << 10;

/// reduce_scatter of which each node sends its sums only: each of its ranks adds up what the node has for the
/// ranks of its lane, and the lane exchanges that. `input`, of which each rank of the group gets its part_of
/// in `output`, lies in a buffer from allocate().
std::unique_ptr<Step> make_reduce_scatter_over_nodes(Segment& segment, const Descriptor& mine,
                                                     NodeLanes lanes, const Buffer& input, Buffer output,
                                                     ReduceOp op, const Label& where);

/// all_gather of which each part comes to each node once: the lanes exchange, and within a node the ranks
/// give each other what their lanes have brought. `output` may be any memory.
std::unique_ptr<Step> make_all_gather_over_nodes(Segment& segment, const Descriptor& mine, NodeLanes lanes,
                                                 const Buffer& input, const Buffer& output,
                                                 const Label& where);

}  // namespace dtrain::comm
