#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "plan/memory_estimate.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::plan {

/// A model laid over a cluster in one way. Everything is borrowed.
struct MeshCase {
  const topology::Cluster& cluster;
  const topology::Mesh& mesh;
  const models::Model& model;  ///< As the mesh's tensor axis slices it.
  const parallel::StageCuts& cuts;
  const models::Shape& sample_shape;
  const Footprint& footprint;
  int global_batch = 1;    ///< Samples per step, over all ranks.
  double limit_bytes = 0;  ///< Of a rank's memory; 0: none.
};

/// What that needs, by estimates from shapes alone.
struct MeshPlan {
  topology::MeshShape mesh;
  double memory_bytes = 0;         ///< Of the rank that needs most.
  bool repeats_layers = false;     ///< To need no more, each stage runs layers again in backward.
  double bytes_in_node = 0;        ///< Sent by a rank in a step, to ranks of its node; a mean.
  double bytes_between_nodes = 0;  ///< The same, to ranks of other nodes.
  double idle_share = 0;  ///< Of the ranks' time, for the pipeline's order and unequal stages; in [0, 1).
};

/// All ways that were looked at.
struct ClusterPlan {
  std::int64_t parameters = 0;
  double copy_bytes = 0;          ///< Parameters, gradients and optimizer state of one copy that is not cut.
  double limit_bytes = 0;         ///< Of a rank; 0: none was given.
  std::vector<MeshPlan> fitting;  ///< See put_best_first.
  std::vector<MeshPlan> too_large;
  std::vector<std::string> refused;  ///< `MESH: why`: they make no sense for this model or batch.
};

/// With as few layers run again as the limit asks for, where it can be met.
MeshPlan plan_of(const MeshCase& one);

/// Whether so much memory leaves room in a rank that has `limit` bytes: 20 %, for what an estimate misses.
/// Without a limit (0) nothing is known to.
bool leaves_room(double memory_bytes, double limit);

/// Orders by the sum of places in three orders: by memory, by bytes (those between nodes count ten times) and
/// by idle time. Meshes that leave room share a place in memory: less of it makes no step faster. Equal sums
/// are ordered by bytes.
void put_best_first(std::vector<MeshPlan>& plans, double limit);

}  // namespace dtrain::plan
