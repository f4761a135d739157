#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "models/exported/slicing/head_walk.hpp"

namespace dtrain::models::exported {

/// Finds the linear layers whose results are seen as heads: one for each of queries, keys and values, or one
/// for several of them and split() or chunk() behind it. nn.MultiheadAttention of one sequence has one for
/// all three, which lie behind one another.
class Projections {
 public:
  /// Adds what it finds to `made`, borrowed.
  Projections(const NodeSearch& search, CutAttention& made) : search_(search), made_(made) {}

  /// Whether there is such a layer before each view, and nothing else uses what lies between.
  bool reach(const std::vector<HeadWalk::Source>& sources);

 private:
  struct Link {
    Place place;
    const Node* node;
    ValueId self;
  };

  bool has_all_parts() const;
  bool from_flat(const HeadWalk::Source& source);
  bool split(const Place& place, const Node& node, std::int64_t heads);
  bool joint_projection(ValueId value, std::int64_t width, std::int64_t parts);
  bool from_module(const HeadWalk::Source& source);
  bool of_stack(ValueId value, std::int64_t width);
  std::optional<Link> link(ValueId value) const;
  std::optional<Link> step_back(ValueId value);
  std::optional<Place> before(ValueId value, std::int64_t width);
  void cut(ValueId value, std::size_t dim) { made_.between.push_back({value, dim}); }
  void cut_last(ValueId value) { cut(value, search_.dims(value) - 1); }

  const NodeSearch& search_;
  CutAttention& made_;
  std::map<Place, std::int64_t> heads_of_split_;
  std::set<ValueId> parts_;  // of joint projections
  ValueId stacked_ = 0;      // of nn.MultiheadAttention: what queries, keys and values are picked from
  std::int64_t picked_ = 0;  // so many of them so far
};

}  // namespace dtrain::models::exported
