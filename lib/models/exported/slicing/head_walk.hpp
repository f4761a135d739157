#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "models/exported/slicing/attentions.hpp"

namespace dtrain::models::exported {

/// Follows queries, keys and values back to the views that make heads of a linear layer's results.
///
/// On the way lie functions of each head alone: permutations, element-wise functions, slices and
/// concatenations of other dims than that of the heads, means and norms over those behind it (rotary
/// positions and norms of heads are made of these), and keys that are repeated for the queries of a group.
class HeadWalk {
 public:
  /// A value with so many heads in dim `dim`.
  struct Headed {
    ValueId value = 0;
    std::size_t dim = 0;
    std::int64_t heads = 0;
    bool operator==(const Headed&) const = default;
  };
  /// A view of [.., heads * width] as [.., heads, width], where several dims may be the width, or `parts` of
  /// all heads lie behind one another.
  struct Source {
    Place view;
    Headed made;
    std::int64_t parts = 1;
    bool of_module = false;  ///< nn.MultiheadAttention's: the heads lie beside the samples.
  };

  /// Adds what it finds to `made`, borrowed.
  HeadWalk(const NodeSearch& search, CutAttention& made) : search_(search), made_(made) {}

  /// One of queries, keys and values, [n, heads, ...], that `user` takes. Whether all of it comes from one
  /// such view.
  bool follow(ValueId value, const Place& user);

  /// After all three: finds the groups. Whether a rank can have some groups of all that was passed, which
  /// nothing else uses.
  bool shares_out();

  const std::vector<Source>& sources() const { return sources_; }

 private:
  bool add(const Headed& one);
  bool pass(const Headed& one);
  bool pass_permutation(const Headed& one, const Node& node, ValueId self);
  bool pass_reshape(const Headed& one, const Place& place, ValueId self);
  bool pass_list(const Headed& one, const Node& node);
  bool computes(const Headed& one, const Place& place, const Node& node);
  bool may_compute(const Headed& one, const Node& node) const;
  std::optional<Source> source_at(const Headed& one, const Place& place, ValueId self) const;

  const NodeSearch& search_;
  CutAttention& made_;
  std::map<ValueId, Headed> walked_;
  std::vector<Headed> waiting_;
  std::set<Place> nodes_;
  std::vector<Source> sources_;
};

}  // namespace dtrain::models::exported
