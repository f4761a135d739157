#include "plan/memory_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/loss_scope.hpp"
#include "parallel/gradients/per_sample/sample_walk.hpp"
#include "parallel/gradients/reproducible_sums.hpp"
#include "parallel/pipeline/simulation.hpp"
#include "plan/gradient_memory.hpp"
#include "plan/held_parameters.hpp"

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
  const auto schedule =
      parallel::make_schedule(footprint.pipelining, cuts.ranks, stages, micro_batches_of_rank(footprint));
  return static_cast<double>(parallel::simulate(schedule).peak_live[static_cast<std::size_t>(pipe_index)]) /
         stages;
}

/// The type of what flows from layer to layer.
class Flowing {
 public:
  explicit Flowing(bool mixed) : mixed_(mixed) {}
  double bytes(double elements, double element) const { return elements * (half_ ? 2.0 : element); }
  /// Through one layer, which converts `converted` of its parameters. Returns what it keeps for backward, in
  /// bytes.
  double through(const models::Cost& cost, double input_elements, double element, double converted) {
    if (!mixed_) return cost.activation_bytes * element / 4;
    const auto mixed = models::mixed_cost(cost, input_elements, half_);
    half_ = mixed.gives_half;
    const bool is_first = !goes_back_ && cost.products == models::Cost::Products::of_inputs;
    goes_back_ = goes_back_ || cost.parameter_bytes > 0;
    // Nothing goes back through a first product, which keeps no weight for that.
    return mixed.activation_bytes + (is_first ? 0 : mixed.weight_bytes * converted);
  }
  bool half() const { return half_; }

 private:
  bool mixed_;
  bool half_ = false;
  bool goes_back_ = false;  // what flows has a gradient
};

double exchanged_elements(const Footprint& footprint, const HeldParameters& held) {
  double elements = 0;
  if (footprint.gradient_shards > 1 && !footprint.reproducible) {
    const double bucket = footprint.gathers_layers
                              ? held.of_largest_layer()
                              : held.of_largest_bucket(footprint.bucket_bytes, footprint.element_bytes);
    elements += 2 * bucket * (1 + 1.0 / footprint.gradient_shards);  // one leaves, one is filled
  }
  if (footprint.gathers_layers) elements += held.of_two_layers();
  if (footprint.reproducible) {
    elements += static_cast<double>(parallel::ReproducibleSums::exchanged_elements(
        footprint.micro_batches, footprint.copies, static_cast<std::int64_t>(held.trained())));
  }
  return elements + footprint.offloaded_states *
                        std::min(static_cast<double>(footprint.offloaded_chunk), held.trained());
}

/// What codes and scales take less than full numbers, of all copies' optimizer state.
double saved_by_codes(const Footprint& footprint, const HeldParameters& held) {
  return footprint.coded_states * held.in_large_ones(footprint.least_coded) *
         (footprint.element_bytes - footprint.coded_bytes);
}

/// Of what a checkpoint has, this rank's share.
double saved_elements(const Footprint& footprint, const HeldParameters& held) {
  const double states = held.trained() * footprint.optimizer_states;
  const double model = held.all() * footprint.tensor;
  const bool has_shards = footprint.block_ranks == 1 && footprint.optimizer_shards > 1;
  if (footprint.gathers_layers) return (states + held.trained()) / footprint.copies;
  const double shared_out = has_shards ? model : model + states * footprint.tensor;
  const double shares = std::clamp(
      std::floor(shared_out * footprint.element_bytes / static_cast<double>(footprint.smallest_share)), 1.0,
      static_cast<double>(footprint.copies) * footprint.tensor);
  return shared_out / shares + (has_shards ? states / footprint.copies : 0);
}

/// The layer where a backward pass ends.
std::size_t first_trained(const models::Model& model) {
  const auto& layers = model.layers();
  const auto trains = [](const auto& layer) {
    return std::ranges::any_of(layer->parameters(), [](const auto& one) { return !one.frozen; }) ||
           std::ranges::any_of(layer->borrowed(), [](const auto* one) { return !one->parameter().frozen; });
  };
  return static_cast<std::size_t>(std::ranges::find_if(layers, trains) - layers.begin());
}

/// The copy of what is trained that products read.
double halves_bytes(const Footprint& footprint, const HeldParameters& held) {
  return footprint.half && footprint.keeps_halves ? 2 * held.trained() : 0;
}

/// Those that all copies have to be laid out in, while the first values are still there.
double bytes_at_the_start(const Footprint& footprint, const HeldParameters& held) {
  const double element = footprint.element_bytes;
  const double trained = held.trained() * element;
  const double all = held.all() * element;
  const double halves = halves_bytes(footprint, held);
  // State in 8 bits is taken when the parameters are laid out.
  const double states =
      footprint.coded_states > 0 ? 1.0 : 1.0 + footprint.optimizer_states - footprint.offloaded_states;
  if (footprint.block_ranks > 1) return all + (trained * states + halves) / footprint.block_ranks;
  const double layer = held.of_largest_layer() * element;
  if (footprint.starts_in_shards)  // a layer, and one of its tensors before it is laid out
    return all - trained + trained / footprint.copies + layer + held.of_largest_tensor() * element;
  if (footprint.gathers_layers) return all + trained / footprint.copies + layer;
  return all + trained * (footprint.optimizer_shards > 1 ? 1.0 : states) + halves;
}

}  // namespace

MemoryEstimate estimate_memory(const Footprint& footprint, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers) {
  const double element = footprint.element_bytes;
  double kept = 0;
  double largest_in_front = 0;   // of a layer without a backward pass, while it runs
  double largest_repeated = 0;   // what backward needs of a layer while it runs again
  double largest_gradients = 0;  // of a layer's outputs and inputs, and those of parameters made beside
  double once = 0;               // for all micro-batches
  double in_front = 0;           // what goes into the first layer that has a backward pass
  double passed_on = 0;          // of what comes in, what the layer before keeps already
  const double of_rows = gradient_of_rows(footprint, model, sample_shape);
  const HeldParameters held(model, cuts, pipe_index);
  const GradientsBeside beside(footprint, model);
  if (footprint.clips_samples) repeated_layers = 0;  // it runs layers once
  const bool direct = cuts.ranks == 1 && repeated_layers == 0 && computes_directly(footprint, model);
  Flowing flowing(footprint.half);
  const models::KernelScope kernels(footprint.kernels);
  const models::LossScope loss(footprint.loss_takes_factors);
  const bool of_own_kernels = footprint.computed() == parallel::Computed::by_own_kernels;
  const bool several = micro_batches_of_rank(footprint) > 1;
  const auto first = first_trained(model);
  auto shapes = model.input_shapes(footprint.largest_piece, sample_shape);
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    const int stage = cuts.stage_of(layer);
    const auto cost = model.layers()[layer]->cost(shapes);
    if (cuts.rank_of(stage) == pipe_index) {
      const auto place =
          static_cast<std::int64_t>(layer) - cuts.layers[static_cast<std::size_t>(stage)].begin;
      const double input_bytes = flowing.bytes(elements(shapes), element);
      const double converted = footprint.keeps_halves ? held.frozen_share(layer) : 1;
      const double activations = flowing.through(cost, elements(shapes), element, converted);
      const double output_bytes =
          flowing.bytes(elements(model.layers()[layer]->output_shapes(shapes)), element);
      const bool has_backward = layer >= first;
      const bool begins = place == 0 || layer == first;
      if (place == 0) kept += input_bytes;  // what comes in
      if (place == 0) in_front = 0;         // of another stage
      if (place > 0 && layer == first) kept += in_front;
      if (activations > 0 && !has_backward) in_front = output_bytes;
      if (has_backward) {
        const bool comes_by_rows = of_rows > 0 && layer == 0;
        const double beside_bytes = comes_by_rows ? 0 : beside.at_once(cost, held.largest_of(layer));
        largest_gradients = std::max(largest_gradients, input_bytes + output_bytes + beside_bytes);
        once += beside.held_back(cost);
      }
      const double of_step = of_own_kernels ? cost.step_bytes * element / 4 : 0;
      if (!has_backward) {  // nothing is kept
        largest_in_front = std::max(largest_in_front, input_bytes + activations + of_step);
      } else if (place < repeated_layers) {
        if (!begins) kept += input_bytes - passed_on;
        if (several) once += of_step;
        largest_repeated = std::max(largest_repeated,
                                    activations + (cost.inner_bytes * element / 4) + (several ? 0 : of_step));
      } else {
        kept += activations;
        if (direct && layer > first && activations > 0) kept += input_bytes;  // their gradients' memory
        once += of_step;
      }
    } else {
      flowing.through(cost, elements(shapes), element, 0);
    }
    shapes = model.layers()[layer]->output_shapes(shapes);
    passed_on = flowing.bytes(cost.passed_on, element);
  }
  once += of_rows * element;
  if (footprint.clips_samples) {
    kept *= 2;  // with the gradients of all that is kept
    once += parallel::SampleWalk::most_elements(model, footprint.largest_piece) * element;
  }
  const bool ends_here = cuts.rank_of(cuts.stages() - 1) == pipe_index;
  const bool as_it_is = models::fused_kernels_are_on() && model.takes_half_outputs();
  if (ends_here && flowing.half() && !as_it_is)
    kept += elements(shapes) * element;  // a loss is of full numbers
  if (ends_here && model.goal() == models::Goal::own_input) {
    const double outputs = elements(shapes) * element;
    if (cuts.ranks > 1) kept += outputs;  // as targets; the first stage has them as its inputs
    if (model.program_hash().empty()) {   // own layers lay images out in another way than a loss takes them
      kept += outputs;
      once += outputs;
    }
  }
  const int gradients = footprint.reproducible ? parallel::ReproducibleSums::gradients_held(
                                                     footprint.micro_batches, footprint.copies)
                                               : 1;
  const double trained = held.trained();
  const double shared_out = trained * element + halves_bytes(footprint, held);
  const double all_states = trained * (1.0 + footprint.optimizer_states);
  const double saved = saved_elements(footprint, held);
  const double undone = footprint.undoes ? all_states / footprint.block_ranks : 0;
  MemoryEstimate found{
      .parameters = (held.all() - trained) * element + shared_out / footprint.parameter_shards,
      .gradients = trained * element * gradients / footprint.gradient_shards,
      .optimizer = (trained * element * (footprint.optimizer_states - footprint.offloaded_states) -
                    saved_by_codes(footprint, held)) /
                   footprint.optimizer_shards,
      .activations =
          once + std::max(largest_in_front, kept * live_micro_batches(footprint, cuts, pipe_index) +
                                                largest_repeated + largest_gradients),
      .exchange = (exchanged_elements(footprint, held) + factor_elements(footprint, model)) * element,
      .copies = (undone + (footprint.saves ? saved : 0)) * element};
  // What is saved of state in 8 bits is decoded, one tensor after the other.
  const double decoded = footprint.coded_states > 0 ? held.of_largest_tensor() * element : 0;
  found.apart = std::max(bytes_at_the_start(footprint, held),
                         found.held() + decoded + (footprint.saves ? 0 : saved * element));
  return found;
}

std::int64_t longest_stage(const parallel::StageCuts& cuts) {
  return std::ranges::max(cuts.layers, {}, &Range::size).size();
}

double evaluation_bytes(const Footprint& footprint, const models::Model& model,
                        const models::Shape& sample_shape) {
  constexpr double kHalf = 2;
  const double element = footprint.element_bytes;
  auto shapes = model.input_shapes(1, sample_shape);
  double largest = 0;
  for (const auto& layer : model.layers()) {
    const auto cost = layer->cost(shapes);
    auto next = layer->output_shapes(shapes);
    const bool converts = footprint.half && cost.products != models::Cost::Products::none;
    const double converted = converts ? kHalf * (elements(shapes) + elements(next)) : 0;
    const double made = std::max(cost.activation_bytes * element / 4, elements(next) * element);
    largest = std::max(largest, (elements(shapes) * element) + made + converted);
    shapes = std::move(next);
  }
  return std::max(largest, 2 * elements(shapes) * element);  // the loss makes as much of the last outputs
}

double evaluation_beside(const Footprint& footprint, const models::Model& model) {
  constexpr double kHalf = 2;
  std::int64_t largest = 0;
  for (const auto& layer : model.layers())
    for (const auto& parameter : layer->parameters()) largest = std::max(largest, parameter.value.numel());
  return footprint.half ? kHalf * static_cast<double>(largest) : 0;
}

std::int64_t layers_to_repeat(double limit_bytes, const Footprint& footprint, const models::Model& model,
                              const parallel::StageCuts& cuts, int pipe_index,
                              const models::Shape& sample_shape) {
  const auto all = longest_stage(cuts);
  std::int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t repeated = 0; repeated <= all && !keeps_within(least, limit_bytes); ++repeated) {
    const double bytes = estimate_memory(footprint, model, cuts, pipe_index, sample_shape, repeated).total();
    if (bytes >= least) continue;
    best = repeated;
    least = bytes;
  }
  return best;
}

std::int64_t repeated_layers(const Recompute& recompute, const Footprint& footprint,
                             const models::Model& model, const parallel::StageCuts& cuts, int pipe_index,
                             const models::Shape& sample_shape) {
  const auto limit = static_cast<double>(recompute.limit_bytes);
  // All ranks look at all of a pipeline, so that all refuse alike.
  for (int rank = 0; limit > 0 && rank < cuts.ranks; ++rank) {
    const auto estimate = estimate_memory(footprint, model, cuts, rank, sample_shape, 0);
    const double fixed = estimate.parameters + estimate.gradients + estimate.optimizer;
    require(
        fixed <= limit,
        fmt::format("parameters, gradients and optimizer of pipeline rank {} take {:.0f} bytes", rank, fixed),
        {.subject = "--memory-limit " + recompute.limit,
         .advice =
             footprint.clips_samples ? "allow more" : "allow more, or use more stages with --mesh pipe=P",
         .code = ExitCode::usage});
  }
  if (recompute.what == "full") return longest_stage(cuts);
  if (recompute.what == "none" || limit == 0) return 0;
  return layers_to_repeat(limit, footprint, model, cuts, pipe_index, sample_shape);
}

}  // namespace dtrain::plan
