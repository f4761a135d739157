#include "plan_meshes.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/error.hpp"
#include "models/slicing/tensor_group.hpp"
#include "train/config/footprint.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::app {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int k = 1; k <= number; ++k)
    if (number % k == 0) found.push_back(k);
  return found;
}

/// `config`: of one mesh, resolved. Sets the plan's number of parameters, too.
plan::MeshPlan plan_mesh(const train::RunConfig& config, const topology::Cluster& cluster,
                         h5::Library& library, plan::ClusterPlan& all) {
  const auto& shape = config.mesh_shape;
  const topology::Mesh mesh(cluster, shape, config.comm.order);
  models::RankAlone slices(0, shape.tensor);
  train::WorkloadPlace place;
  if (shape.tensor > 1) place.tensor = &slices;
  place.memory = train::memory_facts(cluster, mesh, false);
  const auto workload = train::make_workload(config, place, library);
  all.parameters = workload.model->parameter_count();
  return plan::plan_of({.cluster = cluster,
                        .mesh = mesh,
                        .model = *workload.model,
                        .cuts = workload.cuts,
                        .sample_shape = workload.dataset.info().shape,
                        .footprint = workload.footprint,
                        .global_batch = config.batch.global_batch,
                        .limit_bytes = all.limit_bytes});
}

/// Of one copy of the model on one rank, its activations not counted.
double copy_bytes(train::RunConfig config, h5::Library& library) {
  config.mesh.clear();
  config.resolve(1);
  config.validate();
  const auto workload = train::make_workload(config, {}, library);
  return workload.memory.parameters + workload.memory.gradients + workload.memory.optimizer;
}

}  // namespace

plan::ClusterPlan plan_meshes(const train::RunConfig& config, h5::Library& library) {
  const auto [nodes, ranks_of_node] = config.cluster_extents();
  const auto cluster = topology::uniform_cluster(nodes, ranks_of_node);
  plan::ClusterPlan found{.limit_bytes = static_cast<double>(config.pipeline.memory_limit_bytes())};
  train::RunConfig one = config;
  one.dry_run = true;
  one.pipeline.memory_limit = "none";  // here it orders, and does not refuse
  found.copy_bytes = copy_bytes(one, library);
  for (const int tensor : divisors(ranks_of_node))
    for (const int pipe : divisors(cluster.world_size() / tensor)) {
      train::RunConfig tried = one;
      tried.mesh =
          fmt::format("data={},pipe={},tensor={}", cluster.world_size() / tensor / pipe, pipe, tensor);
      try {
        tried.resolve(cluster.world_size());
        tried.validate();
        const auto plan = plan_mesh(tried, cluster, library, found);
        const bool fits = found.limit_bytes == 0 || plan.memory_bytes <= found.limit_bytes;
        (fits ? found.fitting : found.too_large).push_back(plan);
      } catch (const Error& error) {
        if (error.code() != ExitCode::usage) throw;
        found.refused.push_back(fmt::format("{}: {}", tried.mesh, error.problem()));
      }
    }
  plan::put_best_first(found.fitting, found.limit_bytes);
  return found;
}

}  // namespace dtrain::app
