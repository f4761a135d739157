#include "models/exported/slicing/cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

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

std::map<ValueId, Place> find_shared_inputs(const NodeSearch& search, const Cuts& cuts) {
  std::map<ValueId, std::set<Place>> given;
  const auto add = [&](const Place& place) { given[*linear_input(search.node_at(place))].insert(place); };
  for (const auto& attention : cuts.attentions)
    for (const auto& projection : attention.projections) add(projection.place);
  for (const auto& pair : cuts.pairs)
    for (const auto& first : pair.firsts) add(first.place);
  std::map<ValueId, Place> shared;
  for (const auto& [value, places] : given)
    if (places.size() > 1 && search.only_users(value, places)) shared.emplace(value, *places.begin());
  return shared;
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
      return is_in(pair.second) || std::ranges::any_of(pair.firsts, is_in, &LinearPair::First::place);
    });
  });
  for (const Place& place : search.places()) {
    const Node& node = search.node_at(place);
    const bool is_cut = std::ranges::any_of(cuts.attentions, [&](const CutAttention& attention) {
      return std::ranges::find(attention.dropouts, place) != attention.dropouts.end();
    });
    if (calls(node, "scaled_dot_product_attention") && !is_cut) cuts.whole.push_back(NodeSearch::title(node));
  }
  leave_narrow(cuts.attentions, &CutAttention::groups, ranks, cuts.narrow);
  leave_narrow(cuts.pairs, &LinearPair::features, ranks, cuts.narrow);
  cuts.shared_inputs = find_shared_inputs(search, cuts);
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
        "{} {} whole, since more than linear layers and functions of each head alone lie around "
        "scaled_dot_product_attention: {}{}; ",
        counted(static_cast<std::int64_t>(cuts.whole.size()), "attention"),
        cuts.whole.size() == 1 ? "stays" : "stay", cuts.whole.front(),
        cuts.whole.size() > 1 ? ", ... " + cuts.whole.back() : "");
  if (!cuts.narrow.empty())
    text += fmt::format("{} {} whole, with fewer heads or features than there are ranks; ",
                        names_of(cuts.narrow), cuts.narrow.size() == 1 ? "stays" : "stay");
  return text + "the rest is on each rank";
}

}  // namespace dtrain::models::exported
