#include "plan/mesh_plan.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "parallel/pipeline/layer_times.hpp"
#include "parallel/pipeline/simulation.hpp"
#include "plan/volumes.hpp"

namespace dtrain::plan {
namespace {

constexpr double kBetweenNodes = 10;  // times slower than within one, roughly

/// The memory of a rank, with as few layers repeated as the limit asks for, or as many as need least.
struct RankMemory {
  double bytes = 0;
  bool repeats = false;
};

RankMemory memory_of(const MeshCase& one, int pipe) {
  const auto estimate = [&](std::int64_t repeated) {
    return estimate_memory(one.footprint, one.model, one.cuts, pipe, one.sample_shape, repeated).total();
  };
  const double plain = estimate(0);
  if (one.limit_bytes == 0 || plain <= one.limit_bytes) return {.bytes = plain};
  const auto repeated =
      layers_to_repeat(one.limit_bytes, one.footprint, one.model, one.cuts, pipe, one.sample_shape);
  return {.bytes = estimate(repeated), .repeats = repeated > 0};
}

/// Of all ranks' time, when each stage takes as long as the largest one.
double idle_share(const MeshCase& one) {
  const auto& mesh = one.mesh.shape();
  if (mesh.pipe == 1) return 0;
  const int pieces = (one.footprint.micro_batches + mesh.data - 1) / mesh.data;
  const auto schedule = parallel::make_schedule(one.footprint.pipelining, mesh.pipe,
                                                one.cuts.stages() / one.cuts.ranks, pieces);
  const auto inputs = one.model.input_shapes(one.footprint.largest_piece, one.sample_shape);
  const auto work = parallel::work_of_layers(one.model, inputs, one.footprint.computed());
  std::vector<double> of_rank(static_cast<std::size_t>(mesh.pipe));
  for (std::size_t layer = 0; layer < work.size(); ++layer)
    of_rank[static_cast<std::size_t>(one.cuts.rank_of(one.cuts.stage_of(layer)))] += work[layer];
  const double mean = std::accumulate(of_rank.begin(), of_rank.end(), 0.0) / mesh.pipe;
  const double balance = mean / std::ranges::max(of_rank);
  return 1 - balance * (1 - parallel::simulate(schedule).idle_share);
}

/// Adds to each plan's score its place when they are ordered by `figure`; equal ones share a place.
void add_places(const std::vector<MeshPlan>& plans, const std::function<double(const MeshPlan&)>& figure,
                std::vector<double>& scores) {
  for (std::size_t i = 0; i < plans.size(); ++i)
    scores[i] += static_cast<double>(std::ranges::count_if(
        plans, [&](const MeshPlan& other) { return figure(other) < figure(plans[i]); }));
}

double weighed_bytes(const MeshPlan& plan) {
  return plan.bytes_in_node + kBetweenNodes * plan.bytes_between_nodes;
}

}  // namespace

MeshPlan plan_of(const MeshCase& one) {
  MeshPlan found{.mesh = one.mesh.shape()};
  for (int pipe = 0; pipe < one.cuts.ranks; ++pipe) {
    const auto memory = memory_of(one, pipe);
    found.memory_bytes = std::max(found.memory_bytes, memory.bytes);
    found.repeats_layers = found.repeats_layers || memory.repeats;
  }
  const auto inputs = one.model.input_shapes(one.global_batch, one.sample_shape);
  for (const auto& volume : step_volumes(one.cluster, one.mesh, one.model, one.cuts, one.footprint, inputs)) {
    const int ranks = one.cluster.world_size();
    found.bytes_between_nodes += volume.bytes_between_nodes / ranks;
    found.bytes_in_node += (volume.bytes - volume.bytes_between_nodes) / ranks;
  }
  found.idle_share = idle_share(one);
  return found;
}

bool leaves_room(double memory_bytes, double limit) {
  constexpr double kFilled = 0.8;
  return limit > 0 && memory_bytes <= kFilled * limit;
}

void put_best_first(std::vector<MeshPlan>& plans, double limit) {
  std::vector<double> scores(plans.size());
  add_places(
      plans,
      [&](const MeshPlan& plan) { return leaves_room(plan.memory_bytes, limit) ? 0 : plan.memory_bytes; },
      scores);
  add_places(plans, weighed_bytes, scores);
  add_places(
      plans, [](const MeshPlan& plan) { return plan.idle_share; }, scores);
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) { return std::pair(scores[i], weighed_bytes(plans[i])); });
  std::vector<MeshPlan> sorted;
  for (const auto i : order) sorted.push_back(plans[i]);
  plans = std::move(sorted);
}

}  // namespace dtrain::plan
