#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dtrain::state {

/// `float32`, ... as checkpoints name it. Throws Error for a type that they do not keep.
std::string dtype_name(at::ScalarType type);

/// The type that a file of weights calls `name`; `file` is the subject of the Error (exit code 4) for others.
at::ScalarType dtype_of(const std::string& name, const std::string& file);

}  // namespace dtrain::state
