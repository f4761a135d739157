#pragma once

#include <cstdint>
#include <vector>

#include "core/slice.hpp"
#include "models/layer.hpp"

namespace dtrain::parallel {

/// A rectangle of a parameter and where it lies in memory.
struct Rectangle {
  std::vector<std::int64_t> offset;  ///< Along each dim of the parameter.
  std::vector<std::int64_t> extent;
  std::int64_t place = 0;  ///< Of its first element, counted from the parameter's first.
};

/// The elements `part`, as they lie in memory, of a dense tensor of this shape and these strides: as
/// rectangles, each element in one. At most 2 dims - 1 of them.
std::vector<Rectangle> rectangles_of(const Range& part, const std::vector<std::int64_t>& shape,
                                     const std::vector<std::int64_t>& strides);

/// A rectangle of the slice that a rank holds as rectangles of the whole tensor: their offsets count there,
/// their places still in what the rank holds, of these strides.
std::vector<Rectangle> in_whole(const models::HeldSlice& slice, const Rectangle& held,
                                const std::vector<std::int64_t>& strides);

}  // namespace dtrain::parallel
