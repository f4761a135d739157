#include "train/setup/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/error.hpp"
#include "models/slicing/tensor_group.hpp"
#include "plan/memory_estimate.hpp"
#include "plan/volumes.hpp"
#include "train/config/footprint.hpp"

namespace dtrain::train {
namespace {

std::vector<models::Shape> largest_piece(const RunConfig& config, const models::Model& model,
                                         const models::Shape& sample_shape) {
  return model.input_shapes(samples_of_largest_piece(config.batch), sample_shape);
}

std::string shape_text(const models::Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1024.0 * 1024.0)); }

constexpr int kRanksShown = 16;

/// What all ranks together send in a step along each axis of the mesh.
std::string volumes(const RunConfig& config, const topology::Cluster& cluster, const topology::Mesh& mesh,
                    const Workload& workload) {
  std::string text;
  for (const auto& volume : plan::step_volumes(
           cluster, mesh, *workload.model, workload.cuts, workload.footprint,
           workload.model->input_shapes(config.batch.global_batch, workload.dataset.info().shape))) {
    text += fmt::format("sent per step by all ranks, {}: {:.0f} bytes", volume.what, volume.bytes);
    if (volume.bytes_between_nodes > 0)
      text += fmt::format(", {:.0f} of them between nodes", volume.bytes_between_nodes);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string placement_table(const topology::Cluster& cluster, const topology::Mesh& mesh, bool all) {
  std::string text = fmt::format("{:>5}  {:>4}  {:<20}  {:>5}  {:>4}  {:>4}  {:>6}  {}\n", "rank", "node",
                                 "host", "local", "data", "pipe", "tensor", "cores");
  for (const auto& place : cluster.ranks) {
    if (!all && place.rank == kRanksShown && cluster.world_size() > kRanksShown + 1) {
      return text + fmt::format("and {} more, of {} nodes in all: --all-ranks lists them\n",
                                cluster.world_size() - kRanksShown, cluster.node_count());
    }
    const auto at = mesh.coordinates(place.rank);
    text += fmt::format("{:>5}  {:>4}  {:<20}  {:>5}  {:>4}  {:>4}  {:>6}  {}\n", place.rank, place.node,
                        place.hostname, place.local_rank, at.data, at.pipe, at.tensor,
                        fmt::join(place.cpus, ","));
  }
  return text;
}

std::string describe(const RunConfig& config, const topology::Cluster& cluster, const topology::Mesh& mesh,
                     const Workload& workload) {
  const auto& sample = workload.dataset.info().shape;
  std::string text =
      fmt::format("mesh {}\n", mesh.shape().to_string()) + placement_table(cluster, mesh, config.all_ranks);

  text += "\n";
  if (!config.pipeline.chosen.empty()) text += fmt::format("memory: {}\n", config.pipeline.chosen);
  const auto& footprint = workload.footprint;
  for (int pipe = 0; pipe < workload.cuts.ranks; ++pipe) {
    const auto repeated =
        plan::repeated_layers(recompute_of(config), footprint, *workload.model, workload.cuts, pipe, sample);
    const auto memory =
        plan::estimate_memory(footprint, *workload.model, workload.cuts, pipe, sample, repeated);
    const auto rank =
        workload.cuts.ranks == 1 ? std::string("a rank") : fmt::format("pipeline rank {}", pipe);
    text += fmt::format(
        "memory of {}, estimated: {} (parameters {}, gradients {}, optimizer {}, activations {}, in exchange "
        "{}, copies {}; without activations {})\n",
        rank, mebibytes(memory.total()), mebibytes(memory.parameters), mebibytes(memory.gradients),
        mebibytes(memory.optimizer), mebibytes(memory.activations), mebibytes(memory.exchange),
        mebibytes(memory.copies), mebibytes(memory.apart));
  }

  text += volumes(config, cluster, mesh, workload);
  if (const auto remark = workload.model->remark(); !remark.empty())
    text += fmt::format("model: {}\n", remark);

  std::vector<models::Shape> shapes = largest_piece(config, *workload.model, sample);
  text += fmt::format("\nfirst micro-batch of {} on {}\n{:<20}  {:>20}  {:>10}  {:>5}\n{:<20}  {:>20}\n",
                      workload.model->name(), workload.dataset.info().name, "layer", "output", "MFLOP",
                      "stage", "input", shape_text(shapes.front()));
  const auto& layers = workload.model->layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto cost = layers[i]->cost(shapes);
    shapes = layers[i]->output_shapes(shapes);
    text += fmt::format("{:<20}  {:>20}  {:>10.3f}  {:>5}\n", layers[i]->name(), shape_text(shapes.front()),
                        cost.flops * 1e-6, workload.cuts.stage_of(i));
  }
  return text;
}

std::string describe_invented(const RunConfig& config, h5::Library& library) {
  const auto [nodes, ranks] = config.cluster_extents();
  const auto cluster = topology::uniform_cluster(nodes, ranks);
  const topology::Mesh mesh(cluster, config.mesh_shape, config.comm.order);
  models::RankAlone slices(0, config.mesh_shape.tensor);
  WorkloadPlace place;
  if (config.mesh_shape.tensor > 1) place.tensor = &slices;
  place.memory = memory_facts(cluster, mesh, false);
  const auto workload = make_workload(config, place, library);
  return fmt::format("{} parameters\n", workload.model->parameter_count()) +
         describe(config, cluster, mesh, workload);
}

}  // namespace dtrain::train
