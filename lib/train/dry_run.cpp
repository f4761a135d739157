#include "train/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace dtrain::train {
namespace {

std::vector<models::Shape> largest_piece(const RunConfig& config, const models::Model& model,
                                         const models::Shape& sample_shape) {
  const auto pieces = config.batch.micro_batches;
  return model.input_shapes((config.batch.global_batch + pieces - 1) / pieces, sample_shape);
}

std::string shape_text(const models::Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string mebibytes(double bytes) { return fmt::format("{:.1f} MiB", bytes / (1024.0 * 1024.0)); }

}  // namespace

MemoryEstimate estimate_memory(const RunConfig& config, const models::Model& model,
                               const models::Shape& sample_shape) {
  const double element = config.precision == "fp64" ? 8 : 4;
  const double parameter_bytes = static_cast<double>(model.parameter_count()) * element;
  MemoryEstimate estimate{.parameters = parameter_bytes,
                          .gradients = parameter_bytes,
                          .optimizer = parameter_bytes * optimizer_config(config.optimizer).state_count()};
  std::vector<models::Shape> shapes = largest_piece(config, model, sample_shape);
  for (const auto& layer : model.layers()) {
    estimate.activations += layer->cost(shapes).activation_bytes * element / 4;
    shapes = layer->output_shapes(shapes);
  }
  return estimate;
}

std::string placement_table(const topology::Cluster& cluster, const topology::Mesh& mesh) {
  std::string text = fmt::format("{:>5}  {:>4}  {:<20}  {:>5}  {:>4}  {:>4}  {:>6}  {}\n", "rank", "node",
                                 "host", "local", "data", "pipe", "tensor", "cores");
  for (const auto& place : cluster.ranks) {
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
  std::string text = fmt::format("mesh {}\n", mesh.shape().to_string()) + placement_table(cluster, mesh);

  const auto memory = estimate_memory(config, *workload.model, sample);
  text += fmt::format(
      "\nmemory of a rank, estimated: {} (parameters {}, gradients {}, optimizer {}, activations {})\n",
      mebibytes(memory.total()), mebibytes(memory.parameters), mebibytes(memory.gradients),
      mebibytes(memory.optimizer), mebibytes(memory.activations));

  std::vector<models::Shape> shapes = largest_piece(config, *workload.model, sample);
  text += fmt::format("\nfirst micro-batch of {} on {}\n{:<20}  {:>20}  {:>10}\n{:<20}  {:>20}\n",
                      workload.model->name(), workload.dataset.info().name, "layer", "output", "MFLOP",
                      "input", shape_text(shapes.front()));
  for (const auto& layer : workload.model->layers()) {
    const auto cost = layer->cost(shapes);
    shapes = layer->output_shapes(shapes);
    text += fmt::format("{:<20}  {:>20}  {:>10.3f}\n", layer->name(), shape_text(shapes.front()),
                        cost.flops * 1e-6);
  }
  return text;
}

}  // namespace dtrain::train
