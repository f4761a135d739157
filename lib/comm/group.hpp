#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/encoding.hpp"
#include "comm/queue.hpp"
#include "comm/types.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {

/// Memory of one rank that the other ranks of its node can read: gradient buckets live here, so that an
/// all_reduce in a node copies nothing in or out. Zero-filled, aligned to 64 bytes; may be plain memory
/// where the group has one rank or no rank to share with.
class SharedBuffer {
 public:
  virtual ~SharedBuffer() = default;
  virtual void* data() = 0;
  virtual std::size_t bytes() const = 0;
};

/// Where a rank of a group is: on the `node`th of the group's `nodes`.
struct NodePlace {
  int node = 0;
  int nodes = 1;
  bool leads = true;  ///< It is the group's first rank there.
};

/// A set of ranks of the mesh and the collectives among them, over MPI or NCCL. Each call only puts an
/// operation into the rank's queue and returns; the result is there once the handle is done. All ranks of
/// the group make the same calls in the same order. Every all_reduce leaves the same bits on every rank.
/// Buffers are borrowed until then. All calls throw Error for mismatched arguments at once; what goes wrong
/// later (a dead peer, a limit passed) is thrown by Handle::wait().
class Group {
 public:
  virtual ~Group() = default;
  virtual const std::string& name() const = 0;  ///< `data`, `pipe`, `world`, ...
  virtual int rank() const = 0;                 ///< In [0, size()).
  virtual int size() const = 0;
  virtual int world_rank_of(int group_rank) const = 0;  ///< In MPI_COMM_WORLD at the start.

  virtual NodePlace node_place() const { return {.leads = rank() == 0}; }

  /// The same ranks, for buffers in the memory of the devices they compute on; null where such buffers have
  /// to be copied into the CPU's memory first.
  virtual Group* on_device() { return nullptr; }

  /// `bytes` of memory fit for this group's fastest all_reduce. Collective over the group, and blocking.
  virtual std::unique_ptr<SharedBuffer> allocate(std::size_t bytes) = 0;
  /// Of a group on devices, whether what allocate() gives travels with fewer copies than other memory of the
  /// device.
  virtual bool registers_memory() const { return false; }

  /// One block of `bytes`, zero-filled, that all ranks of the group map: what each would otherwise hold a
  /// copy of. Empty on all ranks where they do not share a node's memory, or it has no room. Not for buffers
  /// of collectives. Collective over the group, and blocking.
  virtual std::unique_ptr<SharedBuffer> allocate_common(std::size_t /*bytes*/) { return nullptr; }

  /// Element-wise reduction over all ranks, in place.
  virtual Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm = Algorithm::automatic) = 0;
  /// The sum of float32 over all ranks, in place, as `encoding` has it between nodes; on one node
  /// all_reduce(). `encoding` is borrowed until the operation is done.
  virtual Handle all_reduce_encoded(Buffer values, Encoding& /*encoding*/) {
    return all_reduce(values, ReduceOp::sum);
  }
  /// The elements of `values` that reduce_parts() leaves reduced on this rank: together with the other ranks'
  /// all of them, each once, or on every rank all of them.
  virtual Range reduced_part(Buffer values, Algorithm /*algorithm*/ = Algorithm::automatic) const {
    return {0, static_cast<std::int64_t>(values.count)};
  }
  /// An all_reduce of which each rank needs its reduced_part() only; the other elements are as they were or
  /// reduced. Ranks may still read each other's `values` when it is done: leave them alone until a later
  /// collective of the group is done.
  virtual Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm = Algorithm::automatic) {
    return all_reduce(values, op, algorithm);
  }
  /// `input` has n elements, cut as part_of(n, rank, size); `output` receives this rank's part, reduced. Of
  /// this and of all_gather() the input may come from allocate(), on all ranks or on none: in a node that
  /// saves a copy.
  virtual Handle reduce_scatter(Buffer input, Buffer output, ReduceOp op) = 0;
  /// `output` has n elements, cut as part_of(n, rank, size); `input` is this rank's part.
  virtual Handle all_gather(Buffer input, Buffer output) = 0;
  /// Both have size() equal blocks; block i of `input` goes to rank i.
  virtual Handle all_to_all(Buffer input, Buffer output) = 0;
  virtual Handle broadcast(Buffer values, int root) = 0;
  /// Point to point: matched in order per pair of ranks. A send and a receive may be in flight together.
  virtual Handle send(Buffer values, int to) = 0;
  virtual Handle receive(Buffer values, int from) = 0;
  virtual Handle barrier() = 0;
};

}  // namespace dtrain::comm
