#pragma once

#include "h5/library.hpp"
#include "plan/mesh_plan.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// The meshes of the cluster that config.cluster names: tensor within a node, and pipelines of up to as many
/// ranks as the model has layers. Those that fit come the best first (see plan::put_best_first).
/// config.pipeline.memory_limit is the memory of a rank. Throws Error (exit code 2).
plan::ClusterPlan plan_meshes(const train::RunConfig& config, h5::Library& library);

}  // namespace dtrain::app
