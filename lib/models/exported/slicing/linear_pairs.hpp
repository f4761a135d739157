#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/exported/slicing/node_search.hpp"

namespace dtrain::models::exported {

/// Two linear layers with nothing but element-wise functions of the first one's results between, which the
/// ranks of a tensor axis can share: each has a part of the features between them. Source: Shoeybi et al.,
/// "Megatron-LM", 2019, section 3.
struct LinearPair {
  Place first;
  Place second;
  std::vector<Place> reshapes;   ///< Views between them, which leave the last dim as it is.
  std::vector<Place> dropouts;   ///< Between them: their masks are of the whole.
  std::vector<ValueId> between;  ///< What is cut along its last dim.
  std::int64_t features = 0;     ///< In that dim.
  std::string name;              ///< `fc1 and fc2`.
};

/// Those of a program. A weight that others use too, or a value between the two that others use, makes no
/// pair, nor does a number between them that is trained: each rank would have a part of its gradient.
std::vector<LinearPair> find_linear_pairs(const NodeSearch& search);

}  // namespace dtrain::models::exported
