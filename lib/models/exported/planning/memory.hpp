#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// Values that may share memory, as disjoint sets whose root is the first of them that was made.
class Memory {
 public:
  explicit Memory(std::size_t values) : parent_(values) { std::iota(parent_.begin(), parent_.end(), 0); }
  ValueId root(ValueId value) const {
    while (parent_[value] != value) value = parent_[value];
    return value;
  }
  void join(ValueId later, ValueId earlier) {
    const auto a = root(later);
    const auto b = root(earlier);
    if (a != b) parent_[a] = b;
  }

 private:
  std::vector<ValueId> parent_;
};

}  // namespace dtrain::models::exported
