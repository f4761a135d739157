#pragma once

#include <string>

#include "topology/cluster.hpp"
#include "topology/mesh.hpp"
#include "train/config.hpp"
#include "train/workload.hpp"

namespace dtrain::train {

/// What `--dry-run` prints: placement, memory estimate, and the shapes of the first micro-batch layer by
/// layer.
std::string describe(const RunConfig& config, const topology::Cluster& cluster, const topology::Mesh& mesh,
                     const Workload& workload);

/// One line per rank: node, cores, mesh coordinates.
std::string placement_table(const topology::Cluster& cluster, const topology::Mesh& mesh);

}  // namespace dtrain::train
