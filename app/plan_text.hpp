#pragma once

#include <string>

#include "plan/mesh_plan.hpp"
#include "train/config/config.hpp"

namespace dtrain::app {

/// The meshes that fit as a table, the best first (ten of them, or `all`), and five lines of reasons.
std::string plan_text(const train::RunConfig& config, const plan::ClusterPlan& plan, bool all);

}  // namespace dtrain::app
