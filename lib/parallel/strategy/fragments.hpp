#pragma once

#include <cstdint>
#include <vector>

#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// The parameters cut into parts that copies exchange one after another within a round, so that less travels
/// at once. A part is a run of whole tensors. Which one is due follows from the number of the step alone: all
/// copies make the same exchanges in the same order, however long their steps take. Source: Douillard et al.,
/// "Streaming DiLoCo with overlapping communication", 2025 (with consecutive tensors for a fragment).
class Fragments {
 public:
  /// `count` parts of about the same size, on the ranks of a tensor group of the same tensors; some are empty
  /// where there are fewer.
  Fragments(const FlatParameters& parameters, int count);

  int count() const { return static_cast<int>(parts_.size()); }
  /// In elements of the flat parameters; together all of them.
  const Range& part(int index) const { return parts_.at(static_cast<std::size_t>(index)); }

  /// How many have been exchanged after step `step`, from 1, of a round of `steps`: one after another, the
  /// last with the last step.
  int due_by(std::int64_t step, std::int64_t steps) const { return static_cast<int>(step * count() / steps); }

 private:
  std::vector<Range> parts_;
};

}  // namespace dtrain::parallel
