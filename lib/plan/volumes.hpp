#pragma once

#include <vector>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"
#include "topology/mesh.hpp"

namespace dtrain::plan {

/// What all ranks together send in a step along one axis of the mesh.
struct Volume {
  topology::Axis axis = topology::Axis::data;
  const char* what = "";  ///< `gradients on the data axis`, ...
  double bytes = 0;
};

/// Of the axes with more than one rank. Gradients are summed by parts: where the ranks of a node share the
/// parameters that is all, elsewhere each part goes out again. `inputs`: of a whole step's samples.
std::vector<Volume> step_volumes(const topology::MeshShape& mesh, const models::Model& model,
                                 const parallel::StageCuts& cuts, double element_bytes,
                                 const std::vector<models::Shape>& inputs);

}  // namespace dtrain::plan
