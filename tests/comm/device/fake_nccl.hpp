#pragma once

#include <mpi.h>

#include "comm/device/nccl/nccl_extras.hpp"

namespace dtrain::comm {

/// What this rank has called of an NCCL that is none: its communicators are MPI's, the memory of its GPUs is
/// the CPU's, and each of its operations is done when its call returns, all but its set-up, which takes some
/// looks as a non-blocking communicator's does. Linking fake_nccl.cpp defines NCCL's and CUDA's functions.
struct FakeNccl {
  int ids = 0;
  int made = 0;      ///< Communicators, by an id.
  int split = 0;     ///< Calls, of which some gave this rank a communicator.
  int children = 0;  ///< These.
  int destroyed = 0;
  int allocated = 0;  ///< Blocks by ncclMemAlloc.
  int freed = 0;
  int registered = 0;
  int deregistered = 0;
  int urgent_streams = 0;  ///< Of the highest priority.
  int busy_looks = 0;      ///< So many times an event has not passed yet, from now on.
  int sharing = 0;         ///< Communicators, by an id, that share what they have with those split from them.
  /// Sent on such a communicator: one waits until all that was given to any of them before has ended.
  int messages_behind_others = 0;
  /// Given to the GPU a tenth of a second or more before their senders': CUDA waits for them where it loads a
  /// kernel, and keeps the rank from sending what its peer waits for.
  int receives_that_wait = 0;

  static FakeNccl& of_this_rank();
  /// As of a library that has all of them.
  static NcclExtras extras();
};

}  // namespace dtrain::comm
