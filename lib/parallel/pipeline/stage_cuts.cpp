#include "parallel/pipeline/stage_cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

/// FLOPs that take as long as a byte.
struct BytePrices {
  double of_weights = 50;
  double of_activations = 50;
};
constexpr BytePrices kOwnKernels = {.of_weights = 9, .of_activations = 22};
constexpr double kMostBytesPerFlop = 4;
constexpr double kWorthACut = 0.02;   // of the greatest stage, for a cut within a layer
constexpr int kParts = 8;             // a layer is cut at about these parts of its outputs, so that
constexpr std::int64_t kVector = 16;  // the first has whole vectors for kernels, and
constexpr std::int64_t kFewest = 32;  // both have so many

/// What a layer costs, in FLOPs, or a part of one.
struct Work {
  double sum = 0;
  double of_copy = 0;            // what it takes to copy the outputs, where a cut makes them from two parts
  double of_input_gradient = 0;  // and to make that of the inputs, which no layer before has a use for
  std::int64_t outputs = 0;      // that a cut can part
  bool is_first = false;         // the next one is the other part of the layer
};

double work_of(const models::Cost& cost, Computed computed) {
  const bool own = computed == Computed::by_own_kernels;
  const auto prices = own ? kOwnKernels : BytePrices();
  const double done = cost.flops - (own ? cost.spared_flops : 0.0);
  const double weights = own ? std::max(cost.parameter_bytes, cost.transformed_bytes) : cost.parameter_bytes;
  return done + prices.of_weights * std::min(weights, kMostBytesPerFlop * done) +
         prices.of_activations * cost.activation_bytes;
}

/// Of a layer whose outputs lie along dim 1, and whose weights no other layer uses.
std::int64_t outputs_to_cut(models::Model& model, std::size_t layer, const models::Shape& outputs) {
  const bool lent =
      std::ranges::any_of(model.borrowed(), [layer](const auto& one) { return one.owner == layer; });
  return lent || (outputs.size() != 2 && outputs.size() != 4) ? 0 : model.layers()[layer]->own_outputs();
}

std::vector<Work> works_of(models::Model& model, const std::vector<models::Shape>& inputs,
                           Computed computed) {
  std::vector<Work> works;
  auto shapes = inputs;
  bool trained_before = false;
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const auto& layer = model.layers()[i];
    const auto cost = layer->cost(shapes);
    shapes = layer->output_shapes(shapes);
    const auto outputs = outputs_to_cut(model, i, shapes.at(0));
    const double sum = work_of(cost, computed);
    const double copied = work_of({.activation_bytes = cost.activation_bytes}, computed);
    works.push_back({.sum = sum,
                     .of_copy = copied,
                     .of_input_gradient = trained_before ? 0.0 : sum / 2,
                     .outputs = outputs});
    trained_before = trained_before || !layer->parameters().empty();
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
               {.sum = (1 - share) * (whole.sum + whole.of_input_gradient) + whole.of_copy});
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

std::vector<double> work_of_layers(const models::Model& model, const std::vector<models::Shape>& inputs,
                                   Computed computed) {
  std::vector<double> work;
  auto shapes = inputs;
  for (const auto& layer : model.layers()) {
    work.push_back(work_of(layer->cost(shapes), computed));
    shapes = layer->output_shapes(shapes);
  }
  return work;
}

StageCuts cut_within_layers(models::Model& model, const std::vector<models::Shape>& inputs, int ranks,
                            Computed computed) {
  auto works = works_of(model, inputs, computed);
  auto cuts = cut_stages(sums_of(works), ranks, 1, model.name());
  for (int cut = 1; cut < ranks; ++cut) {
    double least = (1 - kWorthACut) * greatest_stage(works, cuts);
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
