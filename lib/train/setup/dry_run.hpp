#pragma once

#include <string>

#include "topology/cluster.hpp"
#include "topology/mesh.hpp"
#include "train/config/config.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What `--dry-run` prints: placement, memory estimate, and the shapes of the first micro-batch layer by
/// layer.
std::string describe(const RunConfig& config, const topology::Cluster& cluster, const topology::Mesh& mesh,
                     const Workload& workload);

/// The same on the cluster that `--cluster` invents, by this process alone.
std::string describe_invented(const RunConfig& config, h5::Library& library);

/// One line per rank: node, cores, mesh coordinates. Of a large job, unless `all`, the first ranks and how
/// many follow.
std::string placement_table(const topology::Cluster& cluster, const topology::Mesh& mesh, bool all);

}  // namespace dtrain::train
