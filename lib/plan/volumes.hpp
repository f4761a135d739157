#pragma once

#include <vector>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "plan/memory_estimate.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::plan {

/// What all ranks together send in a step along one axis of the mesh.
struct Volume {
  topology::Axis axis = topology::Axis::data;
  const char* what = "";  ///< `gradients on the data axis`, ...
  double bytes = 0;
  double bytes_between_nodes = 0;  ///< Of these.
};

/// Of the axes with more than one rank. A sum over s ranks of n nodes is made within each node first: b bytes
/// take 2 (n - 1) b between nodes, by a ring or a tree, and 2 (s - n) b within them. Where the ranks of a
/// node share the parameters, half of the latter: the sums do not go out again. `inputs`: of a whole step's
/// samples.
std::vector<Volume> step_volumes(const topology::Cluster& cluster, const topology::Mesh& mesh,
                                 const models::Model& model, const parallel::StageCuts& cuts,
                                 const Footprint& footprint, const std::vector<models::Shape>& inputs);

}  // namespace dtrain::plan
