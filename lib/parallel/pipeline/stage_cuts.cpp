#include "parallel/pipeline/stage_cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr double kFlopsPerByte = 22;       // of activations
constexpr double kFlopsPerWeightByte = 9;  // in the form that the layer computes with
constexpr double kMostBytesPerFlop = 4;
constexpr double kLeastGain = 0.02;   // of the greatest stage, for a cut within a layer
constexpr int kParts = 8;             // a layer is cut at about these parts of its outputs, so that
constexpr std::int64_t kVector = 16;  // the first has whole vectors for kernels, and
constexpr std::int64_t kFewest = 32;  // both have so many

/// What a layer costs, in FLOPs, or a part of one.
struct Work {
  double sum = 0;
  double of_copy = 0;        // what it takes to copy the outputs
  std::int64_t outputs = 0;  // that a cut can part
  bool is_first = false;     // the next one is the other part of the layer
};

std::vector<Work> works_of(const models::Model& model, const std::vector<models::Shape>& inputs) {
  std::vector<Work> works;
  auto shapes = inputs;
  for (const auto& layer : model.layers()) {
    const auto cost = layer->cost(shapes);
    const double done = cost.flops - cost.spared_flops;
    const double read = std::min(std::max(cost.parameter_bytes, cost.step_bytes), kMostBytesPerFlop * done);
    works.push_back({.sum = done + kFlopsPerWeightByte * read + kFlopsPerByte * cost.activation_bytes,
                     .of_copy = kFlopsPerByte * cost.activation_bytes,
                     .outputs = layer->own_outputs()});
    shapes = layer->output_shapes(shapes);
  }
  return works;
}

std::vector<double> sums_of(const std::vector<Work>& works) {
  std::vector<double> sums;
  for (const Work& work : works) sums.push_back(work.sum);
  return sums;
}

/// The same with `layer` in two, of which the first has `kept` outputs.
std::vector<Work> cut_in_two(std::vector<Work> works, std::size_t layer, std::int64_t kept) {
  const Work whole = works[layer];
  const double share = static_cast<double>(kept) / static_cast<double>(whole.outputs);
  works[layer] = {.sum = share * whole.sum, .is_first = true};
  works.insert(works.begin() + static_cast<std::ptrdiff_t>(layer) + 1,
               {.sum = (1 - share) * whole.sum + whole.of_copy});
  return works;
}

/// The outputs of the first part; 0: there are too few.
std::int64_t first_outputs(std::int64_t outputs, int part) {
  const auto kept = outputs * part / kParts / kVector * kVector;
  return kept >= kFewest && outputs - kept >= kFewest ? kept : 0;
}

/// The greatest stage's; infinite where two parts of a layer lie in one stage.
double greatest_stage(const std::vector<Work>& works, const StageCuts& cuts) {
  double greatest = 0;
  for (const Range& layers : cuts.layers) {
    double sum = 0;
    for (auto layer = layers.begin; layer < layers.end; ++layer) {
      const Work& work = works[static_cast<std::size_t>(layer)];
      if (work.is_first && layer + 1 < layers.end) return std::numeric_limits<double>::infinity();
      sum += work.sum;
    }
    greatest = std::max(greatest, sum);
  }
  return greatest;
}

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
  return sums_of(works_of(model, inputs));
}

StageCuts cut_within_layers(models::Model& model, const std::vector<models::Shape>& inputs, int ranks) {
  auto works = works_of(model, inputs);
  auto cuts = cut_stages(sums_of(works), ranks, 1, model.name());
  for (int cut = 1; cut < ranks; ++cut) {
    double least = (1 - kLeastGain) * greatest_stage(works, cuts);
    std::size_t layer = works.size();  // none
    std::int64_t kept = 0;
    for (std::size_t one = 0; one < works.size(); ++one) {
      for (int part = 1; part < kParts; ++part) {
        const auto tried = first_outputs(works[one].outputs, part);
        if (tried == 0) continue;
        const auto then = cut_in_two(works, one, tried);
        const double greatest = greatest_stage(then, cut_stages(sums_of(then), ranks, 1, model.name()));
        if (greatest >= least) continue;
        least = greatest;
        layer = one;
        kept = tried;
      }
    }
    if (layer == works.size()) break;
    model.cut_layer(layer, kept);
    works = cut_in_two(std::move(works), layer, kept);
    cuts = cut_stages(sums_of(works), ranks, 1, model.name());
  }
  return cuts;
}

}  // namespace dtrain::parallel
