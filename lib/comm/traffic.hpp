#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace dtrain::comm {

/// Payload bytes that this rank sent and received.
struct MovedBytes {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// Counts bytes on any thread: two additions, neither a lock nor an allocation.
class ByteCount {
 public:
  void add(std::int64_t sent, std::int64_t received) {
    sent_.fetch_add(sent, std::memory_order_relaxed);
    received_.fetch_add(received, std::memory_order_relaxed);
  }
  /// What was added since the last call.
  MovedBytes take() {
    return {sent_.exchange(0, std::memory_order_relaxed), received_.exchange(0, std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::int64_t> sent_{0};
  std::atomic<std::int64_t> received_{0};
};

/// How many payload bytes this rank has sent to each other rank and received from it. Ranks are those of
/// MPI_COMM_WORLD at the start. A message is counted for its peer when it is complete. Where ranks read one
/// another's memory, or MPI or NCCL chooses the way of the bytes, a collective counts for all other members
/// of the group alike.
class Traffic {
 public:
  /// `own_rank`: this one; `ranks`: one more than the largest rank.
  Traffic(int own_rank, int ranks) : own_rank_(own_rank), peers_(static_cast<std::size_t>(ranks)) {}

  ByteCount& with(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  /// For bytes to and from all other `members` alike. Lives as long as this. Not while another thread calls
  /// among() or take().
  ByteCount& among(const std::vector<int>& members) { return groups_[members]; }

  /// Adds what was counted since the last call to `totals`, by rank. Shares of a group's bytes add up to
  /// them.
  void take(std::vector<MovedBytes>& totals);

 private:
  int own_rank_;
  std::vector<ByteCount> peers_;                  // by rank
  std::map<std::vector<int>, ByteCount> groups_;  // by members
};

}  // namespace dtrain::comm
