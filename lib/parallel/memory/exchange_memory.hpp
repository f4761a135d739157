#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/group.hpp"
#include "core/slice.hpp"

namespace dtrain::parallel {

/// Flat memory that a rank computes in and a group's collectives read and write. On the CPU both see the same
/// memory, which the ranks of a node share; on a device, too, where the group reaches it, and the memory is
/// the group's own where it registers that. Where it does not reach it, collectives see a copy on the CPU,
/// which is updated before each collective and copied back after it.
class ExchangeMemory {
 public:
  /// `elements` of zeros, of the options' type and device. Collective over `group`, and blocking.
  ExchangeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options);

  const at::Tensor& values() const { return values_; }  ///< [elements], where the rank computes.

  /// The group whose collectives are to be called.
  comm::Group& group() const { return group_; }
  /// A part as a collective is given it; says nothing of what is in it.
  comm::Buffer place(const Range& part) const;
  /// The same, holding what the rank has computed up to here. Waits for a device that the group does not
  /// reach.
  comm::Buffer outgoing(const Range& part) const;
  /// Makes what a collective leaves in a part visible to the rank.
  void take_in(const comm::Handle& collective, const Range& part) const;

 private:
  at::Tensor registered(std::size_t bytes, at::IntArrayRef shape, const at::TensorOptions& options) const;

  comm::Group& group_;
  std::unique_ptr<comm::SharedBuffer> memory_;
  struct Unpin {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Unpin> pinned_;  // memory_'s, where a device copies from and to it
  at::Tensor values_;
  at::Tensor exchanged_;  // what the group sees: the same on the CPU, and where it reaches the device
};

}  // namespace dtrain::parallel
