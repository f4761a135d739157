#pragma once

#include <functional>

#include "models/exported/graph.hpp"
#include "models/layer.hpp"

namespace dtrain::models::exported {

/// Forward FLOPs of a node (a multiply and an add count as two): by formulas for matrix products,
/// convolutions, attention and recurrent layers; one for each element of the results of all else. `shape_of`:
/// of a tensor.
double flops_of(const Node& node, const std::function<Shape(ValueId)>& shape_of);

/// Elements that a node keeps for backward beside its results: attention with dropout has its scaled queries
/// [..., L, E] and its weights [..., L, S] before and after that; without dropout the kernels make them
/// again. A dropout has what masks_kept_by_dropout() says.
double elements_kept_inside(const Node& node, const std::function<Shape(ValueId)>& shape_of);

}  // namespace dtrain::models::exported
