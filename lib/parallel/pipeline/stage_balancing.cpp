#include "parallel/pipeline/stage_balancing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/median.hpp"

namespace dtrain::parallel {
namespace {

std::vector<std::size_t> layers_by_rank(const StageCuts& cuts) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < cuts.ranks; ++rank) counts.push_back(cuts.layers_of(rank).size());
  return counts;
}

}  // namespace

void StageBalancing::step(double seconds) {
  seconds_.push_back(seconds);
  if (seconds_.size() > kMostSteps) seconds_.pop_front();
}

std::optional<StageBalancing::Decision> StageBalancing::after_epoch(int epoch) {
  const auto steps = std::exchange(seconds_, {});
  const auto all = facts_.gather(steps.size() < kFewestSteps ? 0 : median({steps.begin(), steps.end()}));
  auto move = move_layers(facts_.cuts, facts_.layer_costs, all, facts_.model);
  if (!move) return std::nullopt;
  std::vector<std::string> took;
  for (const double seconds : all) took.push_back(fmt::format("{:.3g}", 1e3 * seconds));
  auto words = fmt::format(
      "after epoch {} the ranks of the pipeline have {} layers, before {}; a step takes them {} ms, and the "
      "slowest will take {:.3g} ms",
      epoch, fmt::join(layers_by_rank(move->cuts), ", "), fmt::join(layers_by_rank(facts_.cuts), ", "),
      fmt::join(took, ", "), 1e3 * move->then_s);
  return Decision{.move = std::move(*move), .words = std::move(words)};
}

}  // namespace dtrain::parallel
