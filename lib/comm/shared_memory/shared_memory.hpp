#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "comm/mpi/communicator.hpp"
#include "core/shared_file.hpp"

namespace dtrain::comm {

/// Memory that all ranks of a node have mapped. Owns the mapping. It never has a name where ranks see each
/// other's process ids; else its name is gone before any of it is reserved. So no memory stays taken in
/// /dev/shm after a crash. Zero-filled.
class SharedMemory {
 public:
  /// One block of size() x `bytes_per_rank` (the same on every rank, rounded up to pages) for the ranks of
  /// `local`, which must be able to share memory. Each rank has its own part reserved near itself.
  /// Collective and blocking. std::nullopt on every rank when any has no room or cannot map it.
  static std::optional<SharedMemory> create(const Communicator& local, std::size_t bytes_per_rank);

  /// Bytes of /dev/shm that create() reserves for each rank, and for so many ranks together.
  static std::size_t reserved_per_rank(std::size_t bytes_per_rank);
  static std::size_t reserved_for(int ranks, std::size_t bytes_per_rank);

  /// A number that is the same for two processes exactly where they see the same /dev/shm.
  static std::int64_t identity();

  std::byte* part(int local_rank) const {
    return memory_.data() + static_cast<std::size_t>(local_rank) * part_bytes_;
  }
  std::size_t part_bytes() const { return part_bytes_; }

 private:
  SharedMemory(SharedMapping memory, std::size_t part_bytes)
      : memory_(std::move(memory)), part_bytes_(part_bytes) {}
  SharedMapping memory_;
  std::size_t part_bytes_ = 0;
};

}  // namespace dtrain::comm
