#pragma once

#include <ATen/core/Tensor.h>

#include "comm/group.hpp"
#include "comm/types.hpp"

namespace dtrain::parallel {

/// The type under which a tensor's elements travel. Throws Error for types that never do.
comm::DataType data_type_of(at::ScalarType type);

/// What carries tensors between the ranks of a group, and where the tensors must lie for it.
struct Carrier {
  comm::Group& group;
  at::Device place;
};

/// For tensors on `device`: from there, by the group's own way between devices; where it has none, through
/// copies on the CPU.
Carrier carrier_of(comm::Group& group, at::Device device);

/// A contiguous tensor as communication takes it: its memory, borrowed.
comm::Buffer buffer_of(const at::Tensor& tensor);

}  // namespace dtrain::parallel
