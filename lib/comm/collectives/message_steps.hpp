#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi/transfer.hpp"
#include "comm/step.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// Some ranks of a communicator, as seen by one of them.
struct Party {
  Channel channel;
  std::vector<int> ranks;  ///< Of the communicator, in the order of the algorithm.
  int index = 0;           ///< ranks[index] is this rank.

  int size() const { return static_cast<int>(ranks.size()); }
  /// The rank `distance` places further on, around the end.
  int at(int distance) const {
    const int n = size();
    return ranks[static_cast<std::size_t>(((index + distance) % n + n) % n)];
  }
};

/// Up to here a tree's 2 log2(n) messages of everything cost less than a ring's 2 (n-1) of an n-th.
constexpr std::size_t kTreeBytes = std::size_t{32} << 10;

/// All-reduce in which each rank passes its neighbour 2 (n-1)/n of the buffer, in pieces that overlap with
/// the adding. Every element is summed along one path and then copied: the same bits everywhere. Source:
/// Patarasu and Yuan 2009.
std::unique_ptr<Step> make_ring_all_reduce(Party party, Buffer values, ReduceOp op);

/// All-reduce in 2 log2(n) messages: a binomial tree to the first rank and back. For small buffers.
/// Source: Thakur, Rabenseifner and Gropp 2005.
std::unique_ptr<Step> make_tree_all_reduce(Party party, Buffer values, ReduceOp op);

/// MPI's own all-reduce, non-blocking; 16-bit types by an operation of ours. `by_rank` counts its bytes;
/// null: none does.
std::unique_ptr<Step> make_mpi_all_reduce(const Channel& channel, int ranks, Buffer values, ReduceOp op,
                                          ByteCount* by_rank);

/// From ranks[0] to all, by a binomial tree, in pieces.
std::unique_ptr<Step> make_tree_broadcast(Party party, Buffer values);
std::unique_ptr<Step> make_tree_broadcast(Party party, std::span<std::byte> bytes);

/// Everyone with everyone, a few messages at a time: with rank `i` it sends `outgoing[i]` and receives
/// `incoming[i]`; the own one is copied. Either may be empty, on both sides alike.
std::unique_ptr<Step> make_exchange(Party party, std::vector<Buffer> outgoing, std::vector<Buffer> incoming);

/// The same, but what arrives is reduced into `result`, which starts as this rank's own outgoing part.
std::unique_ptr<Step> make_reducing_exchange(Party party, std::vector<Buffer> outgoing, Buffer result,
                                             ReduceOp op);

/// Empty messages in log2(n) rounds (dissemination).
std::unique_ptr<Step> make_message_barrier(Party party);

/// One message.
std::unique_ptr<Step> make_send(const Channel& channel, Buffer values, int to);
std::unique_ptr<Step> make_receive(const Channel& channel, Buffer values, int from);

}  // namespace dtrain::comm
