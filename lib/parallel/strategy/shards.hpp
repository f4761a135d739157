#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// Gives every rank the flat parameters after each has updated a shard of them.
class ShardGather {
 public:
  /// `shared_out`: ranges of `parameters`, on the CPU; of each this rank has updated its part_of().
  ShardGather(FlatParameters& parameters, comm::Group& group, std::vector<Range> shared_out)
      : parameters_(parameters), group_(group), shared_out_(std::move(shared_out)) {}

  /// Collective over the group, and blocking.
  void gather();

 private:
  FlatParameters& parameters_;
  comm::Group& group_;
  std::vector<Range> shared_out_;
};

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

}  // namespace dtrain::parallel
