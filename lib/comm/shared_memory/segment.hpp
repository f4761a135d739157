#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/shared_memory/shared_memory.hpp"
#include "comm/traffic.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// What a rank says about the operation it enters, for the others to compare with their own.
struct Descriptor {
  std::uint8_t operation = 0;  ///< OperationKind
  std::uint8_t type = 0;       ///< DataType
  std::uint8_t op = 0;         ///< ReduceOp
  std::uint8_t detail = 0;     ///< Algorithm, or 0
  std::uint16_t root = 0;
  std::uint16_t allocation = 0;  ///< 1 + id of the SharedBuffer that holds the values; 0: ordinary memory
  std::uint64_t count = 0;       ///< Elements.
  std::uint64_t offset = 0;      ///< Bytes from the start of the SharedBuffer; may differ between ranks.
};

enum class OperationKind : std::uint8_t {
  all_reduce = 1,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  reduce_parts
};

/// The memory that the ranks of one group on one node share: a line of flags per rank, space to stage
/// ordinary buffers, and the SharedBuffers. Operations use it one at a time, in the same order on all ranks.
/// Each step of an operation ends with post(); a rank may go on once all have posted as often as it has.
class Segment {
 public:
  /// Collective over `local`. `traffic` counts bytes by rank (null: none does); it is borrowed. Throws Error
  /// when the ranks cannot share memory.
  Segment(const Communicator& local, std::vector<int> world_ranks, Traffic* traffic = nullptr);

  /// Of the shared memory that each rank of a segment of so many takes, its SharedBuffers aside.
  static std::size_t bytes_per_rank(int ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int local_rank) const { return world_ranks_[static_cast<std::size_t>(local_rank)]; }

  /// Where operations count the bytes that they move; null: nowhere.
  ByteCount* bytes_with_all() const { return with_all_; }
  ByteCount* bytes_with(int local_rank) const {
    return traffic_ == nullptr ? nullptr : &traffic_->with(world_rank(local_rank));
  }

  /// Says what this rank enters and posts.
  void enter(const Descriptor& mine);
  void post();
  bool all_posted();
  /// Gives the core away until all have posted as often as this rank, at most `limit_s`. True.
  bool sleep(double limit_s);
  const Descriptor& descriptor(int local_rank) const;
  /// The world ranks that have not posted yet, as `ranks 3, 5 have not arrived`; empty when all have.
  std::string missing() const;

  /// One address per rank, for the user of the segment.
  std::span<void*> pointers() { return pointers_; }

  /// Staging alternates between two halves. An operation finds the current half free, and leaves the turn at
  /// a half it did not use last: slow ranks may still read the other.
  void next_turn() { turn_ ^= 1U; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  std::byte* staging(int local_rank, unsigned later = 0) const;  ///< chunk_bytes() of that rank.
  std::byte* result(int local_rank,
                    unsigned later = 0) const;  ///< That rank's aligned_part of a reduced chunk.

  /// `bytes` for each rank that all can read. Collective and blocking. Id, or nothing without room.
  std::optional<std::uint16_t> allocate(const Communicator& local, std::size_t bytes);
  void release(std::uint16_t id);
  std::byte* address(std::uint16_t id, int local_rank, std::size_t offset = 0) const;
  /// Finds the SharedBuffer of this rank that holds [data, data + bytes); sets allocation and offset.
  void locate(const void* data, std::size_t bytes, Descriptor& descriptor) const;

 private:
  struct alignas(128) Line {  // two cache lines: the neighbour is fetched along
    std::atomic<std::uint64_t> posted;
    std::array<Descriptor, 2> descriptors;
  };
  /// Where ranks sleep: the one that posts last wakes them. (A waiter that yields instead is run again and
  /// again before those it waits for: with 8 ranks on 2 cores 20 switches per wait, and behind a stranger's
  /// program a whole time slice each.)
  struct alignas(128) Gate {
    std::atomic<std::uint32_t> opened;
    std::atomic<std::uint32_t> sleepers;
  };
  struct Allocation {
    std::uint16_t id;
    SharedMemory memory;
    std::size_t bytes;
  };
  Line& line(int local_rank) const;
  Gate& gate() const;

  int rank_;
  std::size_t chunk_bytes_;
  std::vector<int> world_ranks_;
  Traffic* traffic_;
  ByteCount* with_all_;
  SharedMemory memory_;
  std::uint64_t posted_ = 0;
  std::uint64_t entered_ = 0;
  unsigned turn_ = 0;
  int next_unseen_ = 0;
  std::uint16_t next_id_ = 0;
  std::vector<Allocation> allocations_;
  std::vector<void*> pointers_;
};

}  // namespace dtrain::comm
