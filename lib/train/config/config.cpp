#include "train/config/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "comm/faults/injection.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "models/plugins/load.hpp"
#include "parallel/device/rank_device.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "parallel/strategy/registry.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/limits.hpp"
#include "train/config/precision.hpp"
#include "train/config/strategy_setting.hpp"
#include "train/recovery/recovery_options.hpp"

namespace dtrain::train {
namespace {

constexpr double kMostInventedRanks = 1e6;

void check_at_least(std::int64_t value, std::int64_t least, std::string_view option) {
  if (value < least)
    throw usage_error(fmt::format("{} is too small", value), option, fmt::format("use {} or more", least));
}

void check_at_most(std::int64_t value, std::int64_t most, std::string_view option) {
  if (value > most)
    throw usage_error(fmt::format("{} is too large", value), option, fmt::format("use {} or less", most));
}

void check_finite(double value, std::string_view option) {
  require_option(std::isfinite(value), fmt::format("{} is not a number to work with", value), option,
                 "use a finite one");
}

void check_not_negative(double value, std::string_view option) {
  check_finite(value, option);
  require_option(value >= 0.0, fmt::format("{} is negative", value), option, "use 0 or more");
}

template <std::size_t N>
void check_one_of(const std::string& value, const std::array<std::string_view, N>& choices,
                  std::string_view option) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  throw usage_error(fmt::format("\"{}\" is not a value it takes", value), option,
                    fmt::format("use one of {}", fmt::join(choices, ", ")));
}

constexpr std::uint64_t kLargestSeed = std::numeric_limits<std::int64_t>::max();
constexpr std::array<std::string_view, 1> kBatchNorms = {"local"};
constexpr std::array<std::string_view, 4> kPrecisions = {"fp32", "fp64", "bf16", "fp16"};
constexpr std::array<std::string_view, 4> kKernels = {"auto", "own", "libtorch", "fused"};
constexpr std::array<std::string_view, 4> kLosses = {"cross_entropy", "mse", "mae", "model"};
constexpr std::array<std::string_view, 2> kSwitches = {"on", "off"};
constexpr std::array<std::string_view, 2> kClassWeights = {"none", "balanced"};
constexpr std::array<std::string_view, 5> kAugments = {"off", "on", "flip", "crop", "crop+flip"};
constexpr std::array<std::string_view, 2> kDecays = {"all", "matrices"};
constexpr std::array<std::string_view, 3> kBalances = {"none", "dynamic", "data"};
constexpr std::array<std::string_view, 3> kRecomputes = {"none", "full", "auto"};
constexpr int kPiecesPerStage = 4;      // by default: a pipeline is then idle for a fifth of its time or less
constexpr int kPiecesToBalance = 4;     // of each data rank, at least: fewer cannot follow speeds
constexpr int kReproduciblePieces = 8;  // by default: for 1, 2, 4 and 8 ranks as many each
constexpr std::array<std::string_view, 2> kBestBy = {"loss", "accuracy"};
constexpr std::array<std::string_view, 3> kOptimizerStates = {"exact", "keep", "reset"};
constexpr std::array<std::string_view, 3> kOnFailure = {"auto", "recover", "abort"};

void validate_batch(const RunConfig& config) {
  const BatchConfig& batch = config.batch;
  check_at_least(batch.global_batch, 1, "--global-batch");
  check_at_most(batch.global_batch, kLargestBatch, "--global-batch");
  check_at_least(batch.evaluation, 0, "--eval-batch");
  check_at_most(batch.micro_batches, kMostPieces, "--micro-batches");
  if (batch.micro_batches <= batch.global_batch)
    return check_at_least(batch.micro_batches, 1, "--micro-batches");
  if (config.given.contains("micro-batches")) {
    throw usage_error(fmt::format("{} pieces of {} samples would leave some empty in every step",
                                  batch.micro_batches, batch.global_batch),
                      "--micro-batches",
                      fmt::format("use at most {}, the --global-batch", batch.global_batch));
  }
  throw usage_error(fmt::format("{} samples cannot feed {} micro-batches of {}", batch.global_batch,
                                batch.micro_batches, config.mesh_shape.to_string()),
                    "--global-batch", fmt::format("use {} or more, or fewer ranks", batch.micro_batches));
}

/// Whether micro-batches can be dealt by speed.
void validate_balance(const RunConfig& config) {
  check_one_of(config.pipeline.balance, kBalances, "--balance");
  if (config.pipeline.balance != "data") return;
  const auto can = parallel::find_strategy(config.strategy).can(strategy_setting(config));
  require_option(static_cast<bool>(can.owns_by_speed),
                 fmt::format("--strategy {} cannot: {}", config.strategy, can.owns_by_speed.why_not),
                 "--balance data", "use --balance none");
  const int wanted = kPiecesToBalance * config.mesh_shape.data;
  // A run that has lost ranks keeps its micro-batches, and goes on with what they allow.
  const bool has_lost = config.mesh_shape.size() < config.started_ranks - config.spares;
  require_option(!balances_data(config) || has_lost || config.batch.micro_batches >= wanted,
                 fmt::format("{} micro-batches for {} data ranks are too few to deal them by speed",
                             config.batch.micro_batches, config.mesh_shape.data),
                 "--balance data", fmt::format("use --micro-batches {} or more, or --balance none", wanted));
}

/// Whether the noise of gradients can be measured. One copy shows none: a run that has lost the others keeps
/// its batch.
void validate_adaptive_batch(const RunConfig& config) {
  if (!config.batch.adaptive) return;
  const auto can = parallel::find_strategy(config.strategy).can(strategy_setting(config));
  require_option(static_cast<bool>(can.adapts_batch),
                 fmt::format("--strategy {} cannot: {}", config.strategy, can.adapts_batch.why_not),
                 "--adaptive-batch", "leave it out");
  require_option(config.mesh_shape.data > 1 || config.started_ranks != 1,
                 "the gradient of one copy shows no noise", "--adaptive-batch",
                 "start two ranks or more, or leave it out");
}

void validate_pipeline(const RunConfig& config) {
  const PipelineConfig& pipeline = config.pipeline;
  const auto& shape = config.mesh_shape;
  parallel::parse_pipelining(pipeline.schedule);
  check_one_of(pipeline.recompute, kRecomputes, "--recompute");
  check_at_least(pipeline.virtual_stages, 1, "--virtual-stages");
  check_at_most(pipeline.virtual_stages, kMostStagesOfARank, "--virtual-stages");
  const auto limit = pipeline.memory_limit_bytes();
  require_option(pipeline.recompute != "auto" || limit > 0,
                 "auto recomputes as much as a limit asks for, and there is none", "--recompute auto",
                 "add --memory-limit, or use none or full");
  require_option(
      pipeline.recompute != "auto" || !config.reproducible || kernels_of(config) != models::Kernels::fused ||
          !half_type(config),
      "how many layers are run again depends on the mesh, and one that is fused rounds otherwise then",
      "--recompute auto", "use none or full with --reproducible, or --kernels own");
  require_option(pipeline.schedule == "interleaved" || !config.given.contains("virtual-stages"),
                 fmt::format("the schedule {} has one stage per rank", pipeline.schedule), "--virtual-stages",
                 "use it with --pipeline interleaved");
  require_option(
      !config.reproducible || shape.pipe == 1 || pipeline.schedule != "interleaved",
      "a rank's stages take a micro-batch back at different times, and its gradient is added up as a whole",
      "--pipeline interleaved", "use 1f1b, eager-1f1b, gpipe or layerwise with --reproducible");
  if (shape.pipe == 1 || pipeline.schedule == "layerwise") return;
  const int owned = config.batch.micro_batches / shape.data;
  require_option(
      owned >= shape.pipe,
      fmt::format("{} micro-batches for {} data ranks leave {} for a pipeline of {} stages, some of which "
                  "would never work",
                  config.batch.micro_batches, shape.data, owned, shape.pipe),
      "--micro-batches", fmt::format("use {} or more, or --pipeline layerwise", shape.data * shape.pipe));
}

/// What an optimizer would pass over in silence.
void check_belongs(const RunConfig& config, const char* option, bool used, std::string_view optimizers) {
  require_option(used || !config.given.contains(option),
                 fmt::format("the optimizer {} has none", config.update.rule.name),
                 fmt::format("--{}", option), fmt::format("leave it out, or use --optimizer {}", optimizers));
}

void validate_update(const RunConfig& config) {
  const UpdateConfig& update = config.update;
  update.rule.validate();
  update.schedule.validate();
  check_not_negative(update.grad_clip, "--grad-clip");
  check_one_of(update.decay, kDecays, "--decay");
  check_belongs(config, "momentum", !update.rule.adaptive() || update.rule.momentum == 0.0, "sgd");
  for (const char* option : {"beta1", "beta2", "epsilon"}) {
    check_belongs(config, option, update.rule.adaptive(), "adam or adamw");
  }
  require_option(!update.rule.adaptive() || config.precision == "fp64" ||
                     update.rule.eps >= std::numeric_limits<float>::min(),
                 fmt::format("{} is zero in fp32, in which the update is computed", update.rule.eps),
                 "--epsilon", "use 1e-37 or more, or --precision fp64");
}

void validate_comm(const RunConfig& config) {
  check_not_negative(config.bucket_mb, "--bucket-mb");
  require_option(config.bucket_mb <= 4096.0, fmt::format("{} MiB is too large", config.bucket_mb),
                 "--bucket-mb", "use 4096 or less");
  require_option(!config.comm.common_set_up || config.comm.backend != comm::Backend::mpi,
                 "with --comm-backend mpi what ranks exchange goes through the CPU's memory", "--nccl-shared",
                 "leave one of them out");
  require_option(!config.comm.common_set_up || config.device != "cpu",
                 "the ranks compute on CPUs, between which there is no NCCL", "--nccl-shared",
                 "leave it out, or use --device cuda");
  check_finite(config.comm.timeout_s, "--watchdog");
  config.comm.validate();
  require_option(config.comm.timeout_s <= kNoLimit_s,
                 fmt::format("{} seconds are too many", config.comm.timeout_s), "--watchdog",
                 "use inf for no limit");
}

void validate_output(const OutputConfig& output) {
  require_option(!output.folder.empty(), "the folder for runs has no name", "--output",
                 "give one, such as runs");
  require_option(output.name.find('/') == std::string::npos && output.name != "." && output.name != "..",
                 fmt::format("\"{}\" is not the name of a folder", output.name), "--name",
                 "leave out slashes; --output says where it lies");
  require_option(output.name.size() <= kLongestName && printable(output.name) == output.name,
                 "has control characters or is too long", "--name " + output.name,
                 fmt::format("use at most {} bytes of plain text", kLongestName));
  check_at_least(output.record_steps, 0, "--record-steps");
  output.checkpoint_interval();
  output.trace_window();
  check_at_least(output.keep, 1, "--keep");
  check_one_of(output.optimizer_state, kOptimizerStates, "--optimizer-state");
  require_option(output.optimizer_state == "exact" || (output.resume != "auto" && output.resume != "none"),
                 "no checkpoint is named whose state it could be", "--optimizer-state",
                 "name one with --resume CHECKPOINT, or leave it out");
}

/// Whether the run can be what it emulates.
void validate_emulation(const RunConfig& config) {
  const auto& fabric = config.fabric;
  if (!fabric.exists()) return;
  const std::string subject = "--emulate " + config.emulate;
  fabric.validate(std::max(config.started_ranks, config.mesh_shape.size()));
  require_option(!config.computes_on_device(), "delays are between CPU ranks", subject, "use --device cpu");
  require_option(!fabric.delays_messages() || config.comm.all_reduce != comm::Algorithm::mpi,
                 "MPI's own sums cannot be delayed", subject, "leave --all-reduce mpi out");
  const auto& shape = config.mesh_shape;
  require_option(!fabric.computes_times() || (shape.pipe == 1 && shape.tensor == 1),
                 "a virtual clock knows no times of pipelines and tensor slices", subject,
                 "use clock = \"real\", or a mesh of data alone");
  require_option(!fabric.computes_times() || !has_servers(config) || config.strategy_options.servers == 1,
                 "a virtual clock puts the messages of one server in order, and not of several", subject,
                 "use --servers 1, or clock = \"real\"");
}

void validate_staging(const std::string& staging) {
  const bool local = staging.starts_with("local=") && staging.size() > std::string_view("local=").size();
  require_option(staging == "none" || staging == "memory" || local,
                 fmt::format("\"{}\" is not a value it takes", staging), "--staging",
                 "use none, memory or local=DIR");
}

}  // namespace

std::int64_t PipelineConfig::memory_limit_bytes() const {
  if (memory_limit == "none") return 0;
  const auto bytes = parse_size(memory_limit);
  require_option(bytes.has_value(), fmt::format("\"{}\" is not a size", memory_limit), "--memory-limit",
                 "write one such as 512MiB or 2GiB, or none");
  return *bytes;
}

record::TraceWindow OutputConfig::trace_window() const {
  if (trace_steps == "all") return {};
  const auto dash = std::min(trace_steps.find('-'), trace_steps.size());
  const std::string_view text = trace_steps;
  const auto first = parse_number<std::int64_t>(text.substr(0, dash));
  const auto last = dash == text.size() ? first : parse_number<std::int64_t>(text.substr(dash + 1));
  require_option(first && last && *first >= 1 && *last >= *first,
                 fmt::format("\"{}\" names no steps", printable(trace_steps)), "--trace-steps",
                 "write one, or the first and the last, such as 100-110; steps count from 1");
  return {.first = *first, .last = *last};
}

state::Interval OutputConfig::checkpoint_interval() const {
  if (checkpoint_every == "end") return {};
  return state::parse_interval(checkpoint_every, "--checkpoint-every");
}

std::int64_t ValidationConfig::every_steps() const {
  const auto interval = state::parse_interval(every, "--validate-every");
  if (interval.unit == state::Interval::Unit::steps) return static_cast<std::int64_t>(interval.count);
  require_option(interval.unit == state::Interval::Unit::epochs && interval.count == 1,
                 fmt::format("{} is not a number of steps", every), "--validate-every",
                 "write one such as 500steps, or 1epoch");
  return 0;
}

std::pair<int, int> RunConfig::cluster_extents() const {
  const auto nodes = leading_number<int>(cluster);
  const auto ranks = parse_number<int>(nodes.rest.substr(nodes.rest.starts_with('x') ? 1 : 0));
  require_option(nodes && nodes.rest.starts_with('x') && ranks && nodes.value > 0 && *ranks > 0 &&
                     static_cast<double>(nodes.value) * *ranks <= kMostInventedRanks,
                 fmt::format("\"{}\" is not a number of nodes and of ranks on each", cluster), "--cluster",
                 "write one such as 384x8");
  return {nodes.value, *ranks};
}

std::int64_t RunConfig::replicate_every() const {
  if (replicate == "off") return 0;
  const auto steps = parse_number<std::int64_t>(replicate);
  require_option(steps && *steps >= 1, fmt::format("\"{}\" is not a number of steps", replicate),
                 "--replicate", "use off, or 1 or more");
  return *steps;
}

void RunConfig::resolve(int world_size) {
  mesh_shape =
      mesh.empty() ? topology::MeshShape{world_size, 1, 1} : topology::MeshShape::parse(mesh, world_size);
  if (reproducible && threads == 0) threads = 1;  // LibTorch's sums depend on it
  if (batch.micro_batches == 0 && !given.contains("micro-batches") && reproducible) {
    batch.micro_batches = kReproduciblePieces;
  } else if (batch.micro_batches == 0 && !given.contains("micro-batches")) {
    const int per_copy = mesh_shape.pipe > 1 ? kPiecesPerStage * mesh_shape.pipe : 1;
    batch.micro_batches =
        workers(*this) * (balances_data(*this) ? std::max(per_copy, kPiecesToBalance) : per_copy);
  }
  resolve_federated(*this);
}

void RunConfig::validate() const {
  require_option(!model.name.empty(), "no model is named", "--model", "name one, such as mlp");
  if (!model.loss.empty() && !models::is_added_loss(model.loss)) check_one_of(model.loss, kLosses, "--loss");
  check_one_of(model.golden, kSwitches, "--golden");
  check_one_of(model.class_weights, kClassWeights, "--class-weights");
  check_not_negative(model.label_smoothing, "--label-smoothing");
  require_option(model.label_smoothing < 1.0,
                 fmt::format("{} would leave nothing of the targets", model.label_smoothing),
                 "--label-smoothing", "use a value below 1, such as 0.1");
  require_option(!data.dataset.empty(), "no dataset is named", "--dataset", "name one, such as synthetic");
  validate_staging(data.staging);
  check_one_of(data.augment, kAugments, "--augment");
  check_at_least(data.augment_padding, 1, "--augment-padding");
  require_option(data.crops() || !given.contains("augment-padding"), "nothing is cropped",
                 "--augment-padding", "leave it out, or use --augment crop or crop+flip");
  validate_strategy_options(*this);
  validate_federated(*this);
  require_option(!all_ranks || dry_run, "only a dry run lists ranks", "--all-ranks", "add --dry-run");
  require_option(cluster.empty() || dry_run, "a cluster that is not there cannot train", "--cluster",
                 "add --dry-run");
  check_at_least(epochs, 1, "--epochs");
  check_at_least(limit_steps, 0, "--limit-steps");
  if (exit_after != "none") state::parse_time_s(exit_after, "--exit-after");
  validate_batch(*this);
  validate_pipeline(*this);
  validate_balance(*this);
  validate_adaptive_batch(*this);
  validate_update(*this);
  validation.every_steps();
  check_one_of(validation.best_by, kBestBy, "--best-by");
  check_at_least(validation.early_stopping, 0, "--early-stopping");
  require_option(batch_norm != "sync",
                 "statistics over the pieces of all ranks are not available in this version", "--batch-norm",
                 "use local: the statistics of each micro-batch");
  check_one_of(batch_norm, kBatchNorms, "--batch-norm");
  check_one_of(precision, kPrecisions, "--precision");
  require_option(device_graphs == "auto" || device_graphs == "off",
                 fmt::format("there is no choice {}", device_graphs), "--device-graphs", "use auto or off");
  require_option(parallel::is_device_name(device), fmt::format("there is no device {}", device), "--device",
                 "use auto, cpu or cuda");
  require_option(
      !computes_on_device() || device == "cuda" || precision == "fp32" || precision == "fp64",
      fmt::format("products in half precision are for CPUs and GPUs, not for the device {}", device),
      "--precision", "use fp32");
  require_option(!tf32 || precision == "fp32",
                 fmt::format("TF32 is how a GPU multiplies numbers in fp32, and these are in {}", precision),
                 "--tf32", "leave it out, or use --precision fp32");
  require_option(!tf32 || device != "cpu", "the CPU computes, which multiplies fp32 exactly", "--tf32",
                 "leave it out, or use --device cuda");
  check_one_of(kernels, kKernels, "--kernels");
  check_at_least(threads, 0, "--threads");
  check_at_most(threads, kMostThreads, "--threads");
  require_option(seed <= kLargestSeed, fmt::format("{} is too large", seed), "--seed",
                 fmt::format("use {} or less, the largest integer of TOML", kLargestSeed));
  validate_comm(*this);
  validate_output(output);
  check_at_least(verify_every, 0, "--verify-every");
  comm::parse_faults(inject, std::max(started_ranks, mesh_shape.size()));
  validate_emulation(*this);
  check_at_least(spares, 0, "--spares");
  replicate_every();
  check_one_of(on_failure, kOnFailure, "--on-failure");
  check_recovery(*this, parallel::require_strategy(strategy, strategy_setting(*this)));
}

}  // namespace dtrain::train
