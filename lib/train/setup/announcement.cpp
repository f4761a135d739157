#include "train/setup/announcement.hpp"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <string>
#include <vector>

#include "core/counted.hpp"
#include "core/version.hpp"
#include "models/compute/precision.hpp"
#include "parallel/tensor/tensor_ranks.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/precision.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::train {
namespace {

void announce_device(const Job& job, const std::string& name, const std::string& no_graphs, const Log& log) {
  if (!job.device().is_cpu()) log.info("device     " + name);
  for (const auto& sentence : job.cluster().shared_gpus()) log.info("device     " + sentence);
  if (!job.device().is_cpu() && !no_graphs.empty()) log.info("graphs     none: " + no_graphs);
}

void warn_of_sums_between_nodes(const RunConfig& config, const Job& job, const Workload& workload,
                                const Log& log) {
  if (job.rank() != 0 || !job.mesh().crosses_nodes(job.cluster(), topology::Axis::tensor)) return;
  const auto inputs =
      workload.model->input_shapes(samples_of_largest_piece(config.batch), workload.dataset.info().shape);
  log.warn(
      fmt::format("the tensor axis crosses nodes: each micro-batch sums {:.1f} MiB between them, layer by "
                  "layer; let tensor divide the ranks of a node to avoid it",
                  parallel::bytes_of_sums(*workload.model, inputs) / 0x1p20));
}

/// A run keeps the pieces that it was begun with: on more ranks some have none.
void warn_of_idle_ranks(const RunConfig& config, const Job& job, const Log& log) {
  if (is_federated(config)) return;  // clients are dealt
  const int copies = workers(config);
  const int pieces = config.batch.micro_batches;
  if (job.rank() != 0 || pieces >= copies) return;
  log.warn(
      fmt::format("{} of {} data ranks have nothing to do: a step has {}, and a run keeps "
                  "their number; use at most {} data ranks, or begin a run with more --micro-batches",
                  copies - pieces, copies, counted(pieces, "micro-batch"), pieces));
}

/// Ranks wait at each step for those that have one piece more: after a loss, mostly.
void tell_of_uneven_ranks(const RunConfig& config, const Job& job, const Log& log) {
  if (has_servers(config)) return;    // copies take pieces from servers, at their own pace
  if (balances_data(config)) return;  // how many depends on their speed
  const int copies = job.mesh().shape().data;
  const int pieces = config.batch.micro_batches;
  const int most = (pieces + copies - 1) / copies;
  if (pieces <= copies || 10 * pieces >= 9 * most * copies) return;
  log.info(fmt::format(
      "uneven     some of {} data ranks compute {} of a step's {} micro-batches, and the others wait "
      "for them: at most {:.0f} % of the time of all ranks is used",
      copies, most, pieces, 100.0 * pieces / (most * copies)));
}

/// Not where a run has lost ranks, and with them its pipeline.
void tell_of_missing_pipeline(const RunConfig& config, const Log& log) {
  const auto& pipeline = config.pipeline;
  const bool has_lost = config.mesh_shape.size() < config.started_ranks - config.spares;
  if (config.mesh_shape.pipe > 1 || has_lost) return;
  std::vector<std::string> idle;
  if (pipeline.schedule != PipelineConfig().schedule) idle.push_back("--pipeline " + pipeline.schedule);
  if (pipeline.balance == "dynamic") idle.emplace_back("--balance dynamic");
  if (idle.empty()) return;
  log.info(fmt::format(
      "pipeline   none, as the mesh has no pipe axis: {} {} without effect; --mesh pipe=P adds one",
      fmt::join(idle, " and "), idle.size() > 1 ? "are" : "is"));
}

void tell_of_compression(const RunConfig& config, const Job& job, const Log& log) {
  const auto& wanted = config.strategy_options.compression;
  if (wanted == "none") return;
  const bool travels = job.mesh().crosses_nodes(job.cluster(), topology::Axis::data);
  const int after = config.strategy_options.compression_after;
  const auto from = after > 0 ? fmt::format(", from step {} on", after + 1) : std::string();
  log.info(travels ? fmt::format("compressed gradients between nodes: {}{}", wanted, from)
                   : fmt::format("compressed nothing: --compression {} is between nodes, and one is left",
                                 wanted));
}

/// Half precision is for speed as well where the processor multiplies it in tiles.
void tell_of_precision(const RunConfig& config, const Job& job, const Log& log) {
  if (const auto tf32 = tf32_of(config); !tf32.empty()) {
    log.info(tf32 == "on"
                 ? "precision  fp32 whose products and convolutions round their factors to 10 bits (TF32)"
                 : "precision  fp32 in all its bits; with --tf32 products and convolutions would be "
                   "faster, and round their factors to 10 of 23 bits");
  }
  const auto half = half_type(config);
  if (half && config.kernels == "auto" && kernels_of(config) == models::Kernels::fused)
    log.info("kernels    those that join operations for GPUs; with --kernels own dtrain's others");
  if (!half || !job.device().is_cpu()) return;
  log.info(fmt::format("precision  {} {}", config.precision,
                       models::multiplies_in_tiles(*half)
                           ? "has units of its own on this processor (AMX)"
                           : "saves memory on this processor, which has no AMX for it, and no time"));
}

/// A loss of 0.2 may be an error of thousands.
void tell_of_scaled_targets(const Workload& workload, const Log& log) {
  const auto& targets = workload.transformation.targets;
  if (targets.empty()) return;
  log.info(
      targets.size() == 1
          ? fmt::format("target     the loss counts in standard deviations, of {:.4g}; rmse and mae are in "
                        "the target's units",
                        targets.front().scale)
          : std::string("targets    the loss counts in their standard deviations; rmse_K and mae_K are in "
                        "the units of target K"));
}

}  // namespace

std::string bits_of(const RunConfig& config, int threads) {
  return fmt::format("bits       of {} micro-batches, {}, {}, LibTorch {}", config.batch.micro_batches,
                     counted(threads, "thread"), at::get_cpu_capability(), TORCH_VERSION);
}

void announce(const RunConfig& config, Job& job, const Workload& workload, const std::string& no_graphs,
              const Log& log) {
  const auto& dataset = workload.dataset.info();
  log.info(fmt::format("dtrain {}: {} ({} parameters) on {}, {} samples, {}, mesh {}, {} each, {}", version(),
                       models::model_title(config.model.name), workload.model->parameter_count(),
                       dataset.name, dataset.samples("train"), counted(job.world().size(), "rank"),
                       job.mesh().shape().to_string(), counted(job.threads(), "thread"),
                       job.groups().backend_name()));
  announce_device(job, config.device, no_graphs, log);
  if (config.reproducible) log.info(bits_of(config, job.threads()));
  warn_of_sums_between_nodes(config, job, workload, log);
  warn_of_idle_ranks(config, job, log);
  tell_of_uneven_ranks(config, job, log);
  tell_of_missing_pipeline(config, log);
  tell_of_compression(config, job, log);
  tell_of_precision(config, job, log);
  if (!config.pipeline.chosen.empty()) log.info("memory     " + config.pipeline.chosen);
  if (!workload.read_in_place.empty()) {
    log.warn(fmt::format("no copy on this node ({}): {}; its ranks read the files in place",
                         job.cluster().ranks.at(static_cast<std::size_t>(job.rank())).hostname,
                         workload.read_in_place));
  }
  tell_of_scaled_targets(workload, log);
  if (const auto remark = workload.model->remark(); !remark.empty()) log.info("model      " + remark);
  if (!workload.golden.empty()) log.info("model      " + workload.golden);
  if (!workload.frozen.empty()) log.info("frozen     " + workload.frozen);
  if (!workload.remark.empty())
    log.info(fmt::format("weights from {}: {}", config.model.init_from, workload.remark));
}

}  // namespace dtrain::train
