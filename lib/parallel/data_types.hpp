#pragma once

#include <c10/core/ScalarType.h>

#include "comm/types.hpp"

namespace dtrain::parallel {

/// The type under which a tensor's elements travel. Throws Error for types that never do.
comm::DataType data_type_of(at::ScalarType type);

}  // namespace dtrain::parallel
