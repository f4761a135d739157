#pragma once

#include <cstdint>

#include "plan/memory_estimate.hpp"
#include "topology/mesh.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// What a rank's memory depends on beside the options.
struct MemoryFacts {
  int ranks_of_node = 1;     ///< Of each data group, on each node; 1 where they are not as many everywhere.
  bool one_node = false;     ///< Each data group is on one node.
  bool recovers = false;     ///< The run goes on after a rank was lost.
  std::int64_t samples = 0;  ///< That an epoch trains on; 0: not known.
};

/// `recovers`: as above.
MemoryFacts memory_facts(const topology::Cluster& cluster, const topology::Mesh& mesh, bool recovers);

/// The options that the estimates of memory depend on.
inline double element_bytes(const RunConfig& config) { return config.precision == "fp64" ? 8 : 4; }

plan::Footprint footprint_of(const RunConfig& config, const MemoryFacts& facts);

inline plan::Recompute recompute_of(const RunConfig& config) {
  return {.what = config.pipeline.recompute,
          .limit_bytes = config.pipeline.memory_limit_bytes(),
          .limit = config.pipeline.memory_limit};
}

}  // namespace dtrain::train
