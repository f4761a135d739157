#include "train/setup/memory_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "models/slicing/tensor_group.hpp"
#include "parallel/strategy/registry.hpp"
#include "plan/memory_estimate.hpp"
#include "train/config/footprint.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

/// The default strategy and those that make its steps.
std::vector<std::string> stages() {
  std::vector<std::string> names;
  for (const auto& entry : parallel::strategies()) {
    if (parallel::makes_same_steps(entry.name, parallel::strategies().front().name))
      names.push_back(entry.name);
  }
  return names;
}

/// All combinations, in the order in which they are tried.
std::vector<MemoryChoice> combinations(const RunConfig& config, const OpenOptions& open) {
  const auto strategies = open.strategy ? stages() : std::vector<std::string>{config.strategy};
  const auto recomputes = open.recompute ? std::vector<std::string>{"none", "auto"}
                                         : std::vector<std::string>{config.pipeline.recompute};
  std::vector<MemoryChoice> all;
  for (std::int64_t pieces = config.batch.micro_batches;; pieces *= 2) {
    for (const auto& recompute : recomputes) {
      for (const auto& strategy : strategies) {
        all.push_back({.strategy = strategy,
                       .recompute = recompute,
                       .micro_batches = static_cast<int>(pieces),
                       .words = {}});
      }
    }
    if (!open.micro_batches || 2 * pieces > config.batch.global_batch) return all;
  }
}

RunConfig with(RunConfig config, const MemoryChoice& choice) {
  config.strategy = choice.strategy;
  config.pipeline.recompute = choice.recompute;
  config.batch.micro_batches = choice.micro_batches;
  return config;
}

bool can_run(const RunConfig& config) {
  try {
    config.validate();
    return true;
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    return false;
  }
}

/// Of the rank of a pipeline that needs most.
double estimated_bytes(const RunConfig& config, const MemoryFacts& facts, const Workload& workload) {
  const auto footprint = footprint_of(config, facts);
  const auto& shape = workload.dataset.info().shape;
  const auto limit = static_cast<double>(config.pipeline.memory_limit_bytes());
  double most = 0;
  for (int pipe = 0; pipe < workload.cuts.ranks; ++pipe) {
    const auto& what = config.pipeline.recompute;
    const auto repeated = what == "full"   ? plan::longest_stage(workload.cuts)
                          : what == "auto" ? plan::layers_to_repeat(limit, footprint, *workload.model,
                                                                    workload.cuts, pipe, shape)
                                           : 0;
    const double bytes =
        plan::estimate_memory(footprint, *workload.model, workload.cuts, pipe, shape, repeated).total();
    most = std::max(most, bytes);
  }
  return most;
}

std::string as_options(const MemoryChoice& choice) {
  return fmt::format("--strategy {} --recompute {} --micro-batches {}", choice.strategy, choice.recompute,
                     choice.micro_batches);
}

}  // namespace

OpenOptions open_options(const RunConfig& config, bool micro_batches) {
  if (config.pipeline.memory_limit_bytes() == 0) return {};
  const bool steps_alike = parallel::makes_same_steps(config.strategy, parallel::strategies().front().name);
  return {.strategy = steps_alike && !config.given.contains("strategy"),
          .recompute = !config.given.contains("recompute"),
          .micro_batches = micro_batches && !is_federated(config) && !config.reproducible &&
                           !config.given.contains("micro-batches")};
}

MemoryChoice choose_within_limit(const RunConfig& config, const OpenOptions& open,
                                 const topology::Cluster& cluster, bool recovers, h5::Library& library) {
  const topology::Mesh mesh(cluster, config.mesh_shape, config.comm.order);
  // Of a tensor group the last has the largest slices, and the first the most tokens.
  models::RankAlone first(0, config.mesh_shape.tensor);
  models::RankAlone last(config.mesh_shape.tensor - 1, config.mesh_shape.tensor);
  RunConfig shapes_only = config;
  shapes_only.dry_run = true;
  shapes_only.data.staging = "none";
  shapes_only.model.golden = "off";
  shapes_only.pipeline.memory_limit = "none";  // here it orders, and does not refuse
  shapes_only.pipeline.recompute = "none";
  std::vector<models::TensorGroup*> slices = {nullptr};
  if (config.mesh_shape.tensor > 1) slices = {&first, &last};
  std::vector<Workload> workloads;
  for (auto* const tensor : slices)
    workloads.push_back(make_workload(shapes_only, {.tensor = tensor}, library));
  auto facts = memory_facts(cluster, mesh, recovers);
  facts.samples = workloads.front().dataset.info().samples("train");
  const auto limit = static_cast<double>(config.pipeline.memory_limit_bytes());
  std::optional<MemoryChoice> nearest;
  double least = 0;
  for (auto& choice : combinations(config, open)) {
    const auto tried = with(config, choice);
    if (!can_run(tried)) continue;
    double bytes = 0;
    for (const auto& workload : workloads) bytes = std::max(bytes, estimated_bytes(tried, facts, workload));
    if (plan::keeps_within(bytes, limit)) {
      choice.words = fmt::format("{} fits: by estimate {:.1f} MiB of a rank, --memory-limit {}",
                                 as_options(choice), bytes / kMebibyte, config.pipeline.memory_limit);
      return choice;
    }
    if (nearest && bytes >= least) continue;
    nearest = choice;
    least = bytes;
  }
  require(nearest.has_value(), "no combination of the options that it chooses can run",
          {.subject = "--memory-limit " + config.pipeline.memory_limit,
           .advice = "name --strategy, --recompute and --micro-batches",
           .code = ExitCode::usage});
  throw usage_error(
      fmt::format(
          "no strategy, recomputation and micro-batches fit: the nearest, {}, takes {:.0f} bytes of a "
          "rank by estimate",
          as_options(*nearest), least),
      "--memory-limit " + config.pipeline.memory_limit,
      fmt::format(
          "allow {:.0f}MiB, or use more ranks{}{}", std::ceil((1 + plan::kEstimateError) * least / kMebibyte),
          config.strategy_options.dp_clip > 0 ? "" : ", or more stages with --mesh pipe=P",
          config.reproducible ? ", or more --micro-batches, which --reproducible leaves to you" : ""));
}

}  // namespace dtrain::train
