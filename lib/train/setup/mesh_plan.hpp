#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "h5/library.hpp"
#include "topology/mesh.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// One way to lay a model over a cluster, by estimates from shapes alone.
struct MeshPlan {
  topology::MeshShape mesh;
  double memory_bytes = 0;         ///< Of the rank that needs most.
  bool repeats_layers = false;     ///< To need no more, each stage runs layers again in backward.
  double bytes_in_node = 0;        ///< Sent by a rank in a step, to ranks of its node; a mean.
  double bytes_between_nodes = 0;  ///< The same, along axes that cross nodes.
  double idle_share = 0;  ///< Of the ranks' time, for the pipeline's order and unequal stages; in [0, 1).
};

/// All ways that were looked at.
struct ClusterPlan {
  std::int64_t parameters = 0;
  double copy_bytes = 0;          ///< Parameters, gradients and optimizer state of one copy that is not cut.
  double limit_bytes = 0;         ///< Of a rank; 0: none was given.
  std::vector<MeshPlan> fitting;  ///< The best first, see plan_meshes.
  std::vector<MeshPlan> too_large;
  std::vector<std::string> refused;  ///< `MESH: why`: they make no sense for this model or batch.
};

/// The meshes of the cluster that config.cluster names: tensor within a node, and pipelines of up to as many
/// ranks as the model has layers. Those that fit are ordered by the sum of their places in three orders: by
/// memory, by bytes (those between nodes count ten times) and by idle time. config.pipeline.memory_limit is
/// the memory of a rank. Throws Error (exit code 2).
ClusterPlan plan_meshes(const RunConfig& config, h5::Library& library);

}  // namespace dtrain::train
