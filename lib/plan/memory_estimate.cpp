#include "plan/memory_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/compute/kernel_scope.hpp"
#include "models/compute/loss_scope.hpp"
#include "models/networks/direct_network.hpp"
#include "parallel/gradients/bucket_cuts.hpp"
#include "parallel/gradients/per_sample/sample_walk.hpp"
#include "parallel/gradients/product_sums.hpp"
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

/// Of a rank, in a step.
int micro_batches_of_rank(const Footprint& footprint) {
  return std::max(1, (footprint.micro_batches + footprint.copies - 1) / footprint.copies);
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

/// What is trained of a layer's parameters, in elements.
struct Trained {
  double all = 0;
  double largest = 0;  // a tensor
};

/// The parameters of a rank's stages, in elements.
class HeldParameters {
 public:
  HeldParameters(const models::Model& model, const parallel::StageCuts& cuts, int pipe_index)
      : layers_(model.layers().size()) {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (cuts.rank_of(cuts.stage_of(layer)) != pipe_index) continue;
      Layer& here = layers_[layer];
      here.stage = cuts.stage_of(layer);
      here.used.insert(layer);
      for (const auto& parameter : model.layers()[layer]->parameters()) {
        owners_[&parameter] = layer;
        const auto count = parameter.value.numel();
        here.all += static_cast<double>(count);
        if (parameter.frozen) continue;
        here.trained += static_cast<double>(count);
        // A table's gradient comes by rows and is never dense, except in a pipeline.
        if (!parameter.by_rows || cuts.ranks > 1)
          here.largest = std::max(here.largest, static_cast<double>(count));
        sizes_.push_back(count);
      }
      for (const auto* borrowed : model.layers()[layer]->borrowed()) {
        const auto owner = owners_.find(&borrowed->parameter());
        if (owner != owners_.end()) here.used.insert(owner->second);
      }
    }
  }

  double all() const { return sum_of(&Layer::all); }
  double trained() const { return sum_of(&Layer::trained); }
  /// Of a layer's parameters.
  double frozen_share(std::size_t layer) const {
    const auto& of = layers_[layer];
    return of.all > 0 ? 1 - of.trained / of.all : 0;
  }
  Trained trained(std::size_t layer) const { return {layers_[layer].trained, layers_[layer].largest}; }
  /// Of the trained ones, those in parameters of `least` or more.
  double in_large_ones(std::int64_t least) const {
    double sum = 0;
    for (const auto size : sizes_) sum += size >= least ? static_cast<double>(size) : 0.0;
    return sum;
  }
  double of_largest_tensor() const {
    return sizes_.empty() ? 0 : static_cast<double>(std::ranges::max(sizes_));
  }
  double of_largest_layer() const { return std::ranges::max(layers_, {}, &Layer::trained).trained; }

  /// What a layer uses and the next one, where that is most.
  double of_two_layers() const {
    double most = 0;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      auto used = layers_[layer].used;
      if (layer + 1 < layers_.size() && layers_[layer + 1].stage == layers_[layer].stage)
        used.insert(layers_[layer + 1].used.begin(), layers_[layer + 1].used.end());
      double sum = 0;
      for (const auto one : used) sum += layers_[one].trained;
      most = std::max(most, sum);
    }
    return most;
  }

  double of_largest_bucket(std::int64_t bucket_bytes, double element) const {
    std::vector<parallel::FlatParameters::Entry> entries;
    std::int64_t offset = 0;
    for (auto size = sizes_.rbegin(); size != sizes_.rend(); ++size) {
      entries.push_back({nullptr, offset, *size});
      offset = parallel::FlatParameters::end_of(entries.back());
    }
    const auto buckets = parallel::cut_buckets(entries, bucket_bytes, static_cast<std::int64_t>(element));
    return buckets.empty() ? 0 : static_cast<double>(std::ranges::max(buckets, {}, &Range::size).size());
  }

 private:
  struct Layer {
    double all = 0;
    double trained = 0;
    double largest = 0;          // of a trained one
    int stage = -1;              // of this rank
    std::set<std::size_t> used;  // layers whose parameters it computes with
  };
  double sum_of(double Layer::*count) const {
    return std::accumulate(layers_.begin(), layers_.end(), 0.0,
                           [count](double sum, const Layer& layer) { return sum + layer.*count; });
  }

  std::vector<Layer> layers_;
  std::vector<std::int64_t> sizes_;  // of the trained ones
  std::map<const models::Parameter*, std::size_t> owners_;
};

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
  return elements + footprint.offloaded_states *
                        std::min(static_cast<double>(footprint.offloaded_chunk), held.trained());
}

/// What ranks that make gradients together read of each other, of which each is charged its share.
double factor_elements(const Footprint& footprint, const models::Model& model) {
  if (!footprint.makes_products) return 0;
  const parallel::LargestStep step{std::int64_t{footprint.micro_batches} * footprint.largest_piece,
                                   footprint.micro_batches};
  const auto products = parallel::trained_products(model);
  return static_cast<double>(parallel::ProductSums::factor_elements(products, step)) / footprint.copies;
}

/// Gradients of parameters that are made beside the place where they are collected, in bytes. A step's first
/// micro-batch may write there; a later one's gradient is added, and so is made beside. Shards and
/// reproducible sums collect each micro-batch's in a place of its own.
class GradientsBeside {
 public:
  GradientsBeside(const Footprint& footprint, const models::Model& model)
      : element_(footprint.element_bytes),
        converts_(footprint.half && footprint.kernels != models::Kernels::fused),
        own_kernels_(footprint.computed() == parallel::Computed::by_own_kernels),
        micro_batches_(micro_batches_of_rank(footprint)),
        adds_up_(micro_batches_ > 1 && footprint.gradient_shards == 1 && !footprint.reproducible),
        none_(factor_elements(footprint, model) > 0) {}

  double at_once(const models::Cost& cost, const Trained& layer) const {
    constexpr double kHalf = 2;
    const double workspace = own_kernels_ ? in_bytes(cost.workspace_bytes) : 0;
    if (none_ || held_back(cost, layer) > 0) return workspace;
    const double least = in_bytes(cost.gradient_bytes);
    if (adds_up_) return workspace + std::max(least, layer.largest * element_);
    const bool converts = converts_ && cost.products != models::Cost::Products::none;
    return workspace + std::max(least, converts ? layer.largest * kHalf : 0);
  }
  /// Kept until the step's end instead: what they are made from.
  double held_back(const models::Cost& cost, const Trained& layer) const {
    const double kept = cost.held_back * micro_batches_;
    return adds_up_ && own_kernels_ && kept <= layer.all ? kept * element_ : 0;
  }

 private:
  double in_bytes(double of_floats) const { return of_floats / sizeof(float) * element_; }

  double element_;
  bool converts_;  // gradients in half precision to those in full
  bool own_kernels_;
  int micro_batches_;
  bool adds_up_;
  bool none_;
};

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

/// Whether a network of one stage keeps the memory of all layers' gradients.
bool computes_directly(const Footprint& footprint, const models::Model& model) {
  if (footprint.tensor > 1 || footprint.half || footprint.reproducible ||
      footprint.kernels != models::Kernels::own)
    return false;
  const auto network = models::DirectNetwork::of(model);
  return network != nullptr &&
         network->fits(footprint.largest_piece, static_cast<std::size_t>(micro_batches_of_rank(footprint)));
}

}  // namespace

MemoryEstimate estimate_memory(const Footprint& footprint, const models::Model& model,
                               const parallel::StageCuts& cuts, int pipe_index,
                               const models::Shape& sample_shape, std::int64_t repeated_layers) {
  const double element = footprint.element_bytes;
  double kept = 0;
  double largest_repeated = 0;   // what backward needs of a layer while it runs again
  double largest_gradients = 0;  // of a layer's outputs and inputs, and those of parameters made beside
  double once = 0;               // for all micro-batches
  double in_front = 0;           // what goes into the first layer that has a backward pass
  double passed_on = 0;          // of what comes in, what the layer before keeps already
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
      const double gradient_bytes = has_backward ? beside.at_once(cost, held.trained(layer)) : 0;
      if (has_backward) once += beside.held_back(cost, held.trained(layer));
      largest_gradients = std::max(largest_gradients, input_bytes + output_bytes + gradient_bytes);
      const double of_step = of_own_kernels ? cost.step_bytes : 0;
      if (!has_backward) {
        // Nothing is kept.
      } else if (place < repeated_layers) {
        if (!begins) kept += input_bytes - passed_on;
        if (several) once += of_step;
        largest_repeated = std::max(largest_repeated, activations + (several ? 0 : of_step));
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
      .activations = kept * live_micro_batches(footprint, cuts, pipe_index) + largest_repeated +
                     largest_gradients + once,
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
