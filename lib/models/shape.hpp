#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "core/error.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// `[64, 3, 32, 32]`, for messages.
std::string shape_text(at::IntArrayRef shape);

/// Product of the extents.
double element_count(const Shape& shape);

/// The Error (exit code 2) for an input that does not fit a layer: names both.
Error input_error(const std::string& layer, const std::string& wanted, at::IntArrayRef got);

}  // namespace dtrain::models
