#include "models/exported/slicing/cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/counted.hpp"
#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
namespace {

/// `a and b, ... c and d`.
template <class Cut>
std::string names_of(const std::vector<Cut>& cuts) {
  return cuts.front().name + (cuts.size() > 1 ? ", ... " + cuts.back().name : "");
}

/// Takes out what has fewer `parts` than there are ranks.
template <class Cut>
void leave_narrow(std::vector<Cut>& cuts, std::int64_t Cut::*parts, std::int64_t ranks,
                  std::vector<Cuts::Narrow>& narrow) {
  std::erase_if(cuts, [&](const Cut& cut) {
    if (cut.*parts >= ranks) return false;
    narrow.push_back({cut.name, cut.*parts});
    return true;
  });
}

}  // namespace

Cuts find_cuts(const PlannedProgram& planned, std::int64_t ranks) {
  const NodeSearch search(planned);
  Cuts cuts{.attentions = find_attentions(search), .pairs = find_linear_pairs(search)};
  std::erase_if(cuts.pairs, [&](const LinearPair& pair) {
    return std::ranges::any_of(cuts.attentions, [&](const CutAttention& attention) {
      const auto is_in = [&](const Place& place) {
        return place == attention.output ||
               std::ranges::find(attention.projections, place, &CutAttention::Projection::place) !=
                   attention.projections.end();
      };
      return is_in(pair.first) || is_in(pair.second);
    });
  });
  for (const Place& place : search.places()) {
    const Node& node = search.node_at(place);
    const bool is_cut = std::ranges::any_of(cuts.attentions, [&](const CutAttention& attention) {
      return std::ranges::find(attention.dropouts, place) != attention.dropouts.end();
    });
    if (calls(node, "scaled_dot_product_attention") && !is_cut) cuts.whole.push_back(NodeSearch::title(node));
  }
  leave_narrow(cuts.attentions, &CutAttention::heads, ranks, cuts.narrow);
  leave_narrow(cuts.pairs, &LinearPair::features, ranks, cuts.narrow);
  return cuts;
}

std::string cuts_in_words(const Cuts& cuts) {
  std::string text;
  const auto are = [](std::size_t count) { return count == 1 ? "is" : "are"; };
  if (!cuts.attentions.empty())
    text += fmt::format("{} {} cut by heads over the tensor axis: {}; ",
                        counted(static_cast<std::int64_t>(cuts.attentions.size()), "attention"),
                        are(cuts.attentions.size()), names_of(cuts.attentions));
  if (!cuts.pairs.empty())
    text += fmt::format("{} of linear layers {} cut over the tensor axis: {}; ",
                        counted(static_cast<std::int64_t>(cuts.pairs.size()), "pair"), are(cuts.pairs.size()),
                        names_of(cuts.pairs));
  if (!cuts.whole.empty())
    text += fmt::format(
        "{} {} whole, since it is not linear layers, view and transpose(1, 2) alone that lie "
        "around scaled_dot_product_attention, or a number or mask there is trained: {}{}; ",
        counted(static_cast<std::int64_t>(cuts.whole.size()), "attention"),
        cuts.whole.size() == 1 ? "stays" : "stay", cuts.whole.front(),
        cuts.whole.size() > 1 ? ", ... " + cuts.whole.back() : "");
  if (!cuts.narrow.empty())
    text += fmt::format("{} {} whole, with fewer heads or features than there are ranks; ",
                        names_of(cuts.narrow), cuts.narrow.size() == 1 ? "stays" : "stay");
  return text + "the rest is on each rank";
}

}  // namespace dtrain::models::exported
