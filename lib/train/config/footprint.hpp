#pragma once

#include "parallel/strategy/registry.hpp"
#include "plan/memory_estimate.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// The options that the estimates of memory depend on.
inline double element_bytes(const RunConfig& config) { return config.precision == "fp64" ? 8 : 4; }

inline plan::Footprint footprint_of(const RunConfig& config) {
  const auto& strategy = parallel::find_strategy(config.strategy);
  const auto blocks = strategy.blocks;
  return {.element_bytes = element_bytes(config),
          .copies = config.mesh_shape.data,
          .micro_batches = config.batch.micro_batches,
          .largest_piece = samples_of_largest_piece(config.batch),
          .pipelining = parallel::parse_pipelining(config.pipeline.schedule),
          .optimizer_states =
              config.update.rule.state_count() + (blocks != nullptr ? blocks(config.strategy_options) : 0),
          .optimizer_shards = strategy.shares.optimizer ? config.mesh_shape.data : 1,
          .gradient_shards = strategy.shares.gradients && !config.reproducible ? config.mesh_shape.data : 1,
          .parameter_shards = strategy.shares.parameters ? config.mesh_shape.data : 1,
          .reproducible = config.reproducible};
}

inline plan::Recompute recompute_of(const RunConfig& config) {
  return {.what = config.pipeline.recompute,
          .limit_bytes = config.pipeline.memory_limit_bytes(),
          .limit = config.pipeline.memory_limit};
}

}  // namespace dtrain::train
