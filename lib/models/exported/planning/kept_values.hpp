#pragma once

#include <set>

#include "models/exported/graph.hpp"
#include "models/exported/planning/memory.hpp"
#include "models/exported/planning/plan.hpp"

namespace dtrain::models::exported {

/// The values of a program that autograd keeps for backward, as roots of memory: those that the derivative of
/// an operator reads which makes or takes them (PyTorch's derivatives.yaml). Of an operator that is not known
/// here, all that it takes and gives.
class KeptValues {
 public:
  KeptValues(const Graph& graph, const Plan& plan);
  /// Whether the memory of `value` is kept.
  bool contains(ValueId value) const;

 private:
  Memory memory_;
  std::vector<ValueId> same_;
  std::set<ValueId> roots_;
};

}  // namespace dtrain::models::exported
