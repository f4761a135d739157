#include "train/setup/mesh_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "models/slicing/tensor_group.hpp"
#include "parallel/pipeline/layer_times.hpp"
#include "parallel/pipeline/simulation.hpp"
#include "plan/memory_estimate.hpp"
#include "plan/volumes.hpp"
#include "train/config/footprint.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {
namespace {

constexpr double kBetweenNodes = 10;  // times slower than within one, roughly

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int k = 1; k <= number; ++k)
    if (number % k == 0) found.push_back(k);
  return found;
}

/// The memory of a rank, with as few layers repeated as the limit asks for.
struct RankMemory {
  double bytes = 0;
  bool repeats = false;
};

RankMemory memory_of(const RunConfig& config, const Workload& workload, int pipe, double limit) {
  const auto footprint = footprint_of(config);
  const auto& sample = workload.dataset.info().shape;
  const auto estimate = [&](std::int64_t repeated) {
    return plan::estimate_memory(footprint, *workload.model, workload.cuts, pipe, sample, repeated).total();
  };
  const double plain = estimate(0);
  if (limit == 0 || plain <= limit) return {.bytes = plain};
  const plan::Recompute saving{
      .what = "auto", .limit_bytes = static_cast<std::int64_t>(limit), .limit = config.pipeline.memory_limit};
  try {
    const auto repeated =
        plan::repeated_layers(saving, footprint, *workload.model, workload.cuts, pipe, sample);
    return {.bytes = estimate(repeated), .repeats = true};
  } catch (const Error&) {  // what is kept alone passes the limit
    return {.bytes = plain};
  }
}

/// Of all ranks' time, when each stage takes as long as the largest one.
double idle_share(const RunConfig& config, const Workload& workload) {
  const auto& mesh = config.mesh_shape;
  if (mesh.pipe == 1) return 0;
  const int stages = config.stages_per_rank();
  const int pieces = (config.batch.micro_batches + mesh.data - 1) / mesh.data;
  const auto schedule = parallel::make_schedule(parallel::parse_pipelining(config.pipeline.schedule),
                                                mesh.pipe, stages, pieces);
  const auto inputs =
      workload.model->input_shapes(samples_of_largest_piece(config.batch), workload.dataset.info().shape);
  const auto flops = parallel::flops_of_layers(*workload.model, inputs);
  std::vector<double> of_rank(static_cast<std::size_t>(mesh.pipe));
  for (std::size_t layer = 0; layer < flops.size(); ++layer)
    of_rank[static_cast<std::size_t>(workload.cuts.rank_of(workload.cuts.stage_of(layer)))] += flops[layer];
  const double mean = std::accumulate(of_rank.begin(), of_rank.end(), 0.0) / mesh.pipe;
  const double balance = mean / std::ranges::max(of_rank);
  return 1 - balance * (1 - parallel::simulate(schedule).idle_share);
}

MeshPlan plan_mesh(const RunConfig& config, const topology::Cluster& cluster, double limit,
                   h5::Library& library, ClusterPlan& all) {
  const auto& shape = config.mesh_shape;
  const topology::Mesh mesh(cluster, shape, config.comm.order);
  models::RankAlone slices(0, shape.tensor);
  const auto workload = make_workload(config, {.tensor = shape.tensor > 1 ? &slices : nullptr}, library);
  all.parameters = workload.model->parameter_count();
  MeshPlan found{.mesh = shape};
  for (int pipe = 0; pipe < workload.cuts.ranks; ++pipe) {
    const auto memory = memory_of(config, workload, pipe, limit);
    found.memory_bytes = std::max(found.memory_bytes, memory.bytes);
    found.repeats_layers = found.repeats_layers || memory.repeats;
  }
  const auto inputs = workload.model->input_shapes(config.batch.global_batch, workload.dataset.info().shape);
  for (const auto& volume :
       plan::step_volumes(shape, *workload.model, workload.cuts, element_bytes(config), inputs)) {
    double& bytes =
        mesh.crosses_nodes(cluster, volume.axis) ? found.bytes_between_nodes : found.bytes_in_node;
    bytes += volume.bytes / cluster.world_size();
  }
  found.idle_share = idle_share(config, workload);
  return found;
}

/// Adds to each plan's score its place when they are ordered by `figure`; equal ones share a place.
void add_places(const std::vector<MeshPlan>& plans, const std::function<double(const MeshPlan&)>& figure,
                std::vector<double>& scores) {
  for (std::size_t i = 0; i < plans.size(); ++i)
    scores[i] += static_cast<double>(std::ranges::count_if(
        plans, [&](const MeshPlan& other) { return figure(other) < figure(plans[i]); }));
}

void put_best_first(std::vector<MeshPlan>& plans) {
  std::vector<double> scores(plans.size());
  add_places(
      plans, [](const MeshPlan& plan) { return plan.memory_bytes; }, scores);
  add_places(
      plans,
      [](const MeshPlan& plan) { return plan.bytes_in_node + kBetweenNodes * plan.bytes_between_nodes; },
      scores);
  add_places(
      plans, [](const MeshPlan& plan) { return plan.idle_share; }, scores);
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return scores[i]; });
  std::vector<MeshPlan> sorted;
  for (const auto i : order) sorted.push_back(plans[i]);
  plans = std::move(sorted);
}

}  // namespace

ClusterPlan plan_meshes(const RunConfig& config, h5::Library& library) {
  const auto [nodes, ranks_of_node] = config.cluster_extents();
  const auto cluster = topology::uniform_cluster(nodes, ranks_of_node);
  ClusterPlan plan{.limit_bytes = static_cast<double>(config.pipeline.memory_limit_bytes())};
  RunConfig one = config;
  one.dry_run = true;
  one.pipeline.memory_limit = "none";  // here it orders, and does not refuse
  {
    RunConfig alone = one;
    alone.mesh.clear();
    alone.resolve(1);
    alone.validate();
    const auto workload = make_workload(alone, {}, library);
    const auto memory = plan::estimate_memory(footprint_of(alone), *workload.model, workload.cuts, 0,
                                              workload.dataset.info().shape, 0);
    plan.copy_bytes = memory.total() - memory.activations;
  }
  for (const int tensor : divisors(ranks_of_node))
    for (const int pipe : divisors(cluster.world_size() / tensor)) {
      RunConfig tried = one;
      tried.mesh =
          fmt::format("data={},pipe={},tensor={}", cluster.world_size() / tensor / pipe, pipe, tensor);
      try {
        tried.resolve(cluster.world_size());
        tried.validate();
        const auto found = plan_mesh(tried, cluster, plan.limit_bytes, library, plan);
        const bool fits = plan.limit_bytes == 0 || found.memory_bytes <= plan.limit_bytes;
        (fits ? plan.fitting : plan.too_large).push_back(found);
      } catch (const Error& error) {
        if (error.code() != ExitCode::usage) throw;
        plan.refused.push_back(fmt::format("{}: {}", tried.mesh, error.problem()));
      }
    }
  put_best_first(plan.fitting);
  return plan;
}

}  // namespace dtrain::train
