#include "models/exported/slicing/cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/counted.hpp"

namespace dtrain::models::exported {
namespace {

/// `a and b, ... c and d`.
template <class Cut>
std::string names_of(const std::vector<Cut>& cuts) {
  return cuts.front().name + (cuts.size() > 1 ? ", ... " + cuts.back().name : "");
}

}  // namespace

Cuts find_cuts(const PlannedProgram& planned) {
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
  return text + "the rest is on each rank";
}

}  // namespace dtrain::models::exported
