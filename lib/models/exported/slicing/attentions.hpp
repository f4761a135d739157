#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/exported/slicing/node_search.hpp"

namespace dtrain::models::exported {

/// An attention whose linear layers the ranks of a tensor axis can share: each has some of the heads, from
/// the projections to queries, keys and values to that of the heads' results. Source: Shoeybi et al.,
/// "Megatron-LM", 2019, section 3. Where several heads of queries have one of keys and values, a rank has the
/// queries of its keys: Ainslie et al., "GQA", 2023.
struct CutAttention {
  /// To one of queries, keys and values, or to `parts` of them behind one another.
  struct Projection {
    Place place;
    std::int64_t parts = 1;
  };
  /// A value of which each rank has a part: in dim `dim` the elements of some heads.
  struct Between {
    ValueId value = 0;
    std::size_t dim = 0;
  };
  std::vector<Projection> projections;
  Place output;
  std::int64_t heads = 0;   ///< Of queries.
  std::int64_t groups = 0;  ///< Heads of keys and values, which the ranks share out.
  std::vector<Between> between;
  std::vector<Place> reshapes;    ///< Views, whose sizes are those of the part.
  std::vector<Place> expansions;  ///< Of keys and values to all heads of their group, likewise.
  std::vector<Place> splits;      ///< Of a joint projection.
  std::vector<Place>
      dropouts;  ///< Of [n, heads, ...], alone or inside attention: their masks are the whole's.
  std::vector<Beside> beside;
  std::vector<Beside> by_head;  ///< A value for each head in the third dim from the last: masks, positions.
  std::string name;
};

/// Those of a program that are written as: linear layers to queries, keys and values, as projections.hpp has
/// them; scaled_dot_product_attention, or matmul, sums and products with what all heads have alike or each
/// one has for itself, softmax, dropout and matmul; the way back, and a linear layer. A weight that others
/// use too, or a value between that others use, makes none.
std::vector<CutAttention> find_attentions(const NodeSearch& search);

}  // namespace dtrain::models::exported
