#include "parallel/pipeline/stage_moves.hpp"

#include <algorithm>
#include <utility>

namespace dtrain::parallel {
namespace {

/// Of the layers on each rank.
std::vector<double> costs_by_rank(const StageCuts& cuts, const std::vector<double>& layers) {
  std::vector<double> costs;
  for (int rank = 0; rank < cuts.ranks; ++rank) {
    costs.push_back(0);
    for (const auto layer : cuts.layers_of(rank)) costs.back() += layers.at(layer);
  }
  return costs;
}

}  // namespace

std::optional<StageMove> move_layers(const StageCuts& now, const std::vector<double>& layers,
                                     std::span<const double> seconds, const std::string& model) {
  const auto costs = costs_by_rank(now, layers);
  StageMove move{.costs = {.layers = layers, .slowness = {}}, .cuts = {}};
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    if (!(seconds[rank] > 0) || !(costs[rank] > 0)) return std::nullopt;
    move.costs.slowness.push_back(seconds[rank] / costs[rank]);
    move.now_s = std::max(move.now_s, seconds[rank]);
  }
  move.cuts = cut_stages(layers, now.ranks, now.stages() / now.ranks, model, move.costs.slowness);
  const auto then = costs_by_rank(move.cuts, layers);
  for (std::size_t rank = 0; rank < then.size(); ++rank)
    move.then_s = std::max(move.then_s, move.costs.slowness[rank] * then[rank]);
  if (move.then_s > (1 - kLeastGainOfMove) * move.now_s) return std::nullopt;
  return move;
}

}  // namespace dtrain::parallel
