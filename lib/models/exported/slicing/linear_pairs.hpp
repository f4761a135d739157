#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/exported/slicing/node_search.hpp"

namespace dtrain::models::exported {

/// Linear layers with nothing but element-wise functions of their results between, which the ranks of a
/// tensor axis can share: each has a part of the features between them. Source: Shoeybi et al.,
/// "Megatron-LM", 2019, section 3. A gated one has two first layers, or one for both: Shazeer, "GLU Variants
/// Improve Transformer", 2020.
struct LinearPair {
  /// Gives the features, or `parts` of them behind one another.
  struct First {
    Place place;
    std::int64_t parts = 1;
  };
  std::vector<First> firsts;
  Place second;
  std::vector<Place> reshapes;   ///< Views between them, which leave the last dim as it is.
  std::vector<Place> splits;     ///< Of what a first layer gives into its parts.
  std::vector<Place> dropouts;   ///< Between them: their masks are of the whole.
  std::vector<ValueId> between;  ///< What is cut along its last dim.
  std::vector<Beside> beside;
  std::int64_t features = 0;
  std::string name;  ///< `fc1 and fc2`.
};

/// Those of a program. A weight that others use too, or a value between the layers that others use, makes no
/// pair.
std::vector<LinearPair> find_linear_pairs(const NodeSearch& search);

}  // namespace dtrain::models::exported
