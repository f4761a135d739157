#include "train/config/footprint.hpp"

#include <algorithm>

#include "models/compute/loss_scope.hpp"
#include "models/model.hpp"
#include "optim/coded_optimizer.hpp"
#include "optim/fused_optimizer.hpp"
#include "parallel/step/pieces.hpp"
#include "parallel/strategy/registry.hpp"
#include "state/saved_state.hpp"
#include "train/config/precision.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::train {
namespace {

/// Whether a checkpoint may be written while steps are made: the best model is saved after each epoch.
bool saves_beside_training(const RunConfig& config, std::int64_t samples) {
  using Unit = state::Interval::Unit;
  const auto unit = config.output.checkpoint_interval().unit;
  if (unit == Unit::steps || unit == Unit::seconds || config.validation.every_steps() > 0) return true;
  const parallel::Pieces epoch{.samples = samples, .global_batch = config.batch.global_batch};
  return samples == 0 ? config.epochs > 1 : config.total_steps(epoch.steps()) > epoch.steps();
}

}  // namespace

MemoryFacts memory_facts(const topology::Cluster& cluster, const topology::Mesh& mesh, bool recovers) {
  return {.ranks_of_node = std::max(1, mesh.ranks_on_a_node(cluster, topology::Axis::data)),
          .one_node = !mesh.crosses_nodes(cluster, topology::Axis::data),
          .recovers = recovers};
}

plan::Footprint footprint_of(const RunConfig& config, const MemoryFacts& facts) {
  const auto& strategy = parallel::find_strategy(config.strategy);
  const auto& shares = strategy.shares;
  const auto blocks = strategy.blocks;
  const int copies = config.mesh_shape.data;
  const bool on_device = config.computes_on_device();
  const bool within = config.strategy_options.shard_within == "node";
  const bool one_block = shares.node && (facts.one_node || within) && !on_device;
  const int block_ranks = one_block ? facts.ranks_of_node : 1;
  const int sharers = block_ranks > 1 ? block_ranks : copies;
  const bool gathers_layers = shares.parameters && block_ranks == 1 && copies > 1;
  // Values that are drawn come layer after layer; those of a file, or converted ones, as a whole.
  const bool starts_in_shards = gathers_layers && config.model.init_from.empty() &&
                                !balances_stages(config) && config.precision != "fp64" && !on_device;
  const auto can = strategy.can(strategy_setting(config));
  const bool one_copy = (facts.one_node || copies == 1) && !within;
  return {
      .element_bytes = element_bytes(config),
      .half = half_type(config).has_value(),
      .keeps_halves = can.keeps_halves && !gathers_layers,
      .kernels = on_device && kernels_of(config) == models::Kernels::own
                     ? models::Kernels::libtorch
                     : kernels_of(config),  // own: of CPUs
      .loss_takes_factors = config.model.class_weights == "none" &&
                            models::loss_may_take_factors(kernels_of(config), half_type(config),
                                                          {.label_smoothing = config.model.label_smoothing}),
      .copies = copies,
      .tensor = config.mesh_shape.tensor,
      .micro_batches = config.batch.micro_batches,
      .largest_piece = samples_of_largest_piece(config.batch),
      .pipelining = parallel::parse_pipelining(config.pipeline.schedule),
      .optimizer_states =
          config.update.rule.state_count() + (blocks != nullptr ? blocks(config.strategy_options) : 0),
      .coded_states = config.update.rule.codes_state() ? config.update.rule.state_count() : 0,
      .coded_bytes = optim::kCodedBytes,
      .least_coded = optim::kLeastCoded,
      .offloaded_states = config.update.rule.state_on_host() ? config.update.rule.state_count() : 0,
      .offloaded_chunk = optim::kOffloadedChunk,
      .optimizer_shards = block_ranks > 1 || shares.optimizer ? sharers : 1,
      .gradient_shards = shares.gradients && !config.reproducible ? sharers : 1,
      .parameter_shards = block_ranks > 1 || shares.parameters ? sharers : 1,
      .gathers_layers = gathers_layers,
      .starts_in_shards = starts_in_shards,
      .block_ranks = block_ranks,
      .bucket_bytes = config.bucket_bytes(),
      .makes_products = can.makes_products && one_copy && config.threads <= 1,
      .updates_by_rows = static_cast<bool>(can.updates_by_rows),
      .clips_samples = config.strategy_options.dp_clip > 0 && config.strategy_options.dp_unit == "record",
      .reproducible = config.reproducible,
      .undoes = facts.recovers && can.rolls_back,
      .saves = saves_beside_training(config, facts.samples),
      .smallest_share = state::kSmallestShare};
}

}  // namespace dtrain::train
