#pragma once

#include <ATen/core/Tensor.h>

#include "comm/group.hpp"
#include "comm/types.hpp"

namespace dtrain::parallel {

/// The type under which a tensor's elements travel. Throws Error for types that never do.
comm::DataType data_type_of(at::ScalarType type);

/// Of a group's ranks, the group that takes buffers where tensors lie on `device`: itself, on the CPU and
/// where devices are not reached. What such a group then takes is a copy on the CPU.
comm::Group& reaching(comm::Group& group, at::Device device);

/// A contiguous tensor as communication takes it: its memory, borrowed.
comm::Buffer buffer_of(const at::Tensor& tensor);

}  // namespace dtrain::parallel
