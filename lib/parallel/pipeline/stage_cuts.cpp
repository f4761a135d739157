#include "parallel/pipeline/stage_cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kFlopsPerByte = 50;
constexpr double kMostBytesPerFlop = 4;

}  // namespace

int StageCuts::stage_of(std::size_t layer) const {
  const auto index = static_cast<std::int64_t>(layer);
  const auto place = std::ranges::find_if(
      layers, [index](const Range& range) { return range.begin <= index && index < range.end; });
  return static_cast<int>(place - layers.begin());
}

std::vector<std::size_t> StageCuts::layers_of(int rank) const {
  std::vector<std::size_t> found;
  for (int stage = rank; stage < stages(); stage += ranks) {
    const auto& range = layers[static_cast<std::size_t>(stage)];
    for (auto layer = range.begin; layer < range.end; ++layer)
      found.push_back(static_cast<std::size_t>(layer));
  }
  return found;
}

StageCuts cut_stages(const std::vector<double>& costs, int ranks, int stages_per_rank,
                     const std::string& model, const std::vector<double>& slowness) {
  const std::size_t n = costs.size();
  const auto stages = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(stages_per_rank);
  if (stages > n) {
    throw usage_error(fmt::format("{} stages are more than the {} layers of the model {}", stages, n, model),
                      stages_per_rank > 1 ? "--virtual-stages" : "--mesh",
                      fmt::format("use at most {} stages, pipe times virtual stages", n));
  }
  std::vector<double> before(n + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // worst[s][i]: the least possible greatest run when the first i layers make s stages.
  const double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> worst(stages + 1, std::vector<double>(n + 1, none));
  std::vector<std::vector<std::size_t>> last_cut(stages + 1, std::vector<std::size_t>(n + 1, 0));
  worst[0][0] = 0.0;
  for (std::size_t s = 1; s <= stages; ++s) {
    const double slow = slowness.empty() ? 1.0 : slowness.at((s - 1) % static_cast<std::size_t>(ranks));
    for (std::size_t i = s; i <= n; ++i) {
      for (std::size_t cut = s - 1; cut < i; ++cut) {
        const double greatest = std::max(worst[s - 1][cut], slow * (before[i] - before[cut]));
        if (greatest >= worst[s][i]) continue;
        worst[s][i] = greatest;
        last_cut[s][i] = cut;
      }
    }
  }
  StageCuts cuts{.ranks = ranks, .layers = std::vector<Range>(stages)};
  std::size_t end = n;
  for (std::size_t s = stages; s > 0; --s) {
    const std::size_t begin = last_cut[s][end];
    cuts.layers[s - 1] = {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
    end = begin;
  }
  return cuts;
}

std::vector<double> work_of_layers(const models::Model& model, const std::vector<models::Shape>& inputs) {
  std::vector<double> work;
  auto shapes = inputs;
  for (const auto& layer : model.layers()) {
    const auto cost = layer->cost(shapes);
    const double read = std::min(cost.parameter_bytes, kMostBytesPerFlop * cost.flops);
    work.push_back(cost.flops + kFlopsPerByte * (read + cost.activation_bytes));
    shapes = layer->output_shapes(shapes);
  }
  return work;
}

}  // namespace dtrain::parallel
