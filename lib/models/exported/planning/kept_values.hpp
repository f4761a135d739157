#pragma once

#include <vector>

#include "models/exported/graph.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// For each value of a program, whether autograd keeps its memory for backward: those do that the derivative
/// of an operator reads which makes or takes them (PyTorch's derivatives.yaml). Of an operator that is not
/// known here, all that it takes and gives. The first output is kept by the loss.
std::vector<bool> kept_values(const Graph& graph, const Plan& plan);

}  // namespace dtrain::models::exported
