#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/group.hpp"
#include "parallel/memory/memory_meter.hpp"

namespace dtrain::parallel {

/// Flat memory for what every rank of a group would otherwise hold a copy of: parameters and optimizer state.
/// Where all ranks of the group share a node's memory there is one copy for all of them, and each updates its
/// part; elsewhere it is this rank's own. Tensors taken from it keep it alive.
class NodeMemory {
 public:
  /// Room for `elements` of the options' type; on a device always this rank's own. `own`: for how many where
  /// it is this rank's own. Collective over `group`, and blocking.
  NodeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options, std::int64_t own);
  NodeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options)
      : NodeMemory(group, elements, options, elements) {}

  /// The next `count` elements, zero, starting at a multiple of 64 bytes. Throws Error when there is no room.
  at::Tensor take(std::int64_t count);

  /// Whether all ranks of the group see the same memory.
  bool shared() const { return shared_; }
  /// Whether this rank fills memory whose contents all agree upon: always where it is not shared.
  bool fills() const { return fills_; }

 private:
  at::Tensor whole_;
  std::unique_ptr<MemoryCharge> charge_;  // this rank's share of what is not LibTorch's
  std::int64_t taken_ = 0;
  bool shared_ = false;
  bool fills_ = true;
};

}  // namespace dtrain::parallel
