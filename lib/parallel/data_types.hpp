#pragma once

#include <ATen/core/Tensor.h>

#include "comm/types.hpp"

namespace dtrain::parallel {

/// The type under which a tensor's elements travel. Throws Error for types that never do.
comm::DataType data_type_of(at::ScalarType type);

/// A contiguous tensor as communication takes it: its memory, borrowed.
comm::Buffer buffer_of(const at::Tensor& tensor);

}  // namespace dtrain::parallel
