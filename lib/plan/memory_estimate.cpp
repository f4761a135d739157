#include "plan/memory_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "parallel/gradients/reproducible_sums.hpp"
#include "parallel/pipeline/simulation.hpp"

namespace dtrain::plan {
namespace {

double elements(const std::vector<models::Shape>& shapes) {
  double sum = 0;
  for (const auto& shape : shapes)
    sum += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  return sum;
}

/// Micro-batches whose activations one stage of the rank keeps at once.
double live_micro_batches(const Footprint& footprint, const parallel::StageCuts& cuts, int pipe_index) {
  if (cuts.ranks == 1) return 1;
  const int stages = cuts.stages() / cuts.ranks;
  const int owned = (footprint.micro_batches + footprint.copies - 1) / footprint.copies;
  const auto schedule = parallel::make_schedule(footprint.pipelining, cuts.ranks, stages, std::max(owned, 1));
  return static_cast<double>(parallel::simulate(schedule).peak_live[static_cast<std::size_t>(pipe_index)]) /
         stages;
}

std::int64_t longest_stage(const parallel::StageCuts& cuts) {
  return std::ranges::max(cuts.layers, {}, &Range::size).size();
}

}  // namespace

MemoryEstimate estimate_memory(const Footprint& footprint, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers) {
  const double element = footprint.element_bytes;
  double parameters = 0;
  double trained = 0;
  double kept = 0;
  double largest_repeated = 0;   // what backward needs of a layer while it runs again
  double largest_gradients = 0;  // of a layer's outputs and inputs
  double once = 0;               // for all micro-batches
  auto shapes = model.input_shapes(footprint.largest_piece, sample_shape);
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const int stage = cuts.stage_of(layer);
    if (cuts.rank_of(stage) == pipe_index) {
      const auto place =
          static_cast<std::int64_t>(layer) - cuts.layers[static_cast<std::size_t>(stage)].begin;
      const auto cost = model.layers()[layer]->cost(shapes);
      const double activations = cost.activation_bytes * element / 4;
      if (place == 0) kept += elements(shapes) * element;  // what comes in
      largest_gradients =
          std::max(largest_gradients,
                   (elements(shapes) + elements(model.layers()[layer]->output_shapes(shapes))) * element);
      once += cost.step_bytes;
      if (place < repeated_layers) {
        if (place > 0) kept += elements(shapes) * element;
        largest_repeated = std::max(largest_repeated, activations);
      } else {
        kept += activations;
      }
      for (const auto& parameter : model.layers()[layer]->parameters()) {
        parameters += static_cast<double>(parameter.value.numel());
        if (!parameter.frozen) trained += static_cast<double>(parameter.value.numel());
      }
    }
    shapes = model.layers()[layer]->output_shapes(shapes);
  }
  const int gradients = footprint.reproducible ? parallel::ReproducibleSums::gradients_held(
                                                     footprint.micro_batches, footprint.copies)
                                               : 1;
  const double frozen = parameters - trained;
  return {.parameters = (frozen + trained / footprint.parameter_shards) * element,
          .gradients = trained * element * gradients / footprint.gradient_shards,
          .optimizer = trained * element * footprint.optimizer_states / footprint.optimizer_shards,
          .activations = kept * live_micro_batches(footprint, cuts, pipe_index) + largest_repeated +
                         largest_gradients + once};
}

double evaluation_bytes(double element, const models::Model& model, const models::Shape& sample_shape) {
  auto shapes = model.input_shapes(1, sample_shape);
  double largest = 0;
  for (const auto& layer : model.layers()) {
    const double made = layer->cost(shapes).activation_bytes * element / 4;
    auto next = layer->output_shapes(shapes);
    largest = std::max(largest, (elements(shapes) * element) + std::max(made, elements(next) * element));
    shapes = std::move(next);
  }
  return std::max(largest, 2 * elements(shapes) * element);  // the loss makes as much of the last outputs
}

std::int64_t repeated_layers(const Recompute& recompute, const Footprint& footprint,
                             const models::Model& model, const parallel::StageCuts& cuts, int pipe_index,
                             const models::Shape& sample_shape) {
  const auto limit = static_cast<double>(recompute.limit_bytes);
  const auto with = [&](int rank, std::int64_t repeated) {
    return estimate_memory(footprint, model, cuts, rank, sample_shape, repeated);
  };
  // All ranks look at all of a pipeline, so that all refuse alike.
  for (int rank = 0; limit > 0 && rank < cuts.ranks; ++rank) {
    const auto estimate = with(rank, 0);
    const double fixed = estimate.total() - estimate.activations;
    require(
        fixed <= limit,
        fmt::format("parameters, gradients and optimizer of pipeline rank {} take {:.0f} bytes", rank, fixed),
        {.subject = "--memory-limit " + recompute.limit,
         .advice = "allow more, or use more stages with --mesh pipe=P",
         .code = ExitCode::usage});
  }
  const auto all = longest_stage(cuts);
  if (recompute.what == "full") return all;
  if (recompute.what == "none" || limit == 0) return 0;
  std::int64_t repeated = 0;
  while (repeated < all && with(pipe_index, repeated).total() > limit) ++repeated;
  return repeated;
}

}  // namespace dtrain::plan
