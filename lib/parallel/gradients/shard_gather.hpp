#pragma once

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

}  // namespace dtrain::parallel
