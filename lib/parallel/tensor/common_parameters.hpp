#pragma once

#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// The parameters of which each rank of a tensor group has all, such as norms and the biases of what is
/// summed over the slices. Each rank updates its own copy, by the same gradient. The copies stay the same
/// while nothing is rounded by where an element lies: the ranks have slices of different sizes beside them,
/// so the same element lies elsewhere in each rank's flat memory. Compression and optimizer state in blocks
/// round so; then the copies follow the group's first rank here.
class CommonParameters {
 public:
  /// `left_out`: one that nothing rounds so; null: none.
  CommonParameters(const FlatParameters& parameters, const models::Parameter* left_out, comm::Group& tensor);

  /// Whether any of them lies in `part`: the same on all ranks.
  bool any_in(const Range& part) const { return !within(part).empty(); }

  /// All ranks take over the first one's values of `part` of the flat parameters, which is to have the same
  /// parameters as a whole on all of them. `values` [elements of the part]. `writes`: false where another
  /// rank writes to the same memory. Collective over the group, and blocking.
  void agree(at::Tensor values, const Range& part, bool writes) const;

  /// Throws Error on all ranks of `world` where the copies of a group differ after `step`. Collective over
  /// both, and blocking.
  void require_same(const at::Tensor& values, comm::Group& world, std::int64_t step) const;

 private:
  std::vector<Range> within(const Range& part) const;

  comm::Group& tensor_;
  std::vector<Range> ranges_;  // of the flat parameters, in one order on all ranks
};

}  // namespace dtrain::parallel
