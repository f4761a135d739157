#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/slice.hpp"

namespace dtrain::parallel {

/// Sums over a step's micro-batches whose bits do not depend on which rank computed which of them, nor when:
/// along one binary tree over their indices. A node of height h is the sum of the 2^h micro-batches from
/// index 2^h on, and is only ever made from its two halves; a half behind the last micro-batch is left out.
/// Ranks add their own micro-batches up as far as the tree allows, and bring the nodes that remain together.
///
/// Source of the idea: the binary counter of pairwise summation, Higham, "The Accuracy of Floating Point
/// Summation", SIAM J. Sci. Comput. 14 (1993).
class PieceTree {
 public:
  struct Node {
    int height = 0;
    int index = 0;
    auto operator<=>(const Node&) const = default;
  };

  /// The fewest nodes that together are the micro-batches `pieces`, from left to right: what add() leaves of
  /// them.
  static std::vector<Node> cover(Range pieces);

  /// Adds a node that is not there yet, and takes its memory over: merged with its other half as soon as that
  /// is there too. All values have one shape.
  void add(Node node, at::Tensor value);

  /// What has not been merged, from left to right.
  std::vector<at::Tensor> values() const;

  /// The sum of all that was added, which nothing may be missing from; empties the tree.
  at::Tensor take_total();

  /// Forgets all nodes.
  void clear();

  /// Memory that merging, clear() and give_back() have set free, values as they were; an undefined tensor
  /// when there is none.
  at::Tensor take_free();
  void give_back(at::Tensor memory) { free_.push_back(std::move(memory)); }

 private:
  struct FromTheLeft {
    bool operator()(const Node& a, const Node& b) const {
      return (static_cast<std::int64_t>(a.index) << a.height) <
             (static_cast<std::int64_t>(b.index) << b.height);
    }
  };
  std::map<Node, at::Tensor, FromTheLeft> nodes_;
  std::vector<at::Tensor> free_;
};

}  // namespace dtrain::parallel
