#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "option.hpp"
#include "option_value.hpp"

namespace dtrain::app {
namespace {

using train::RunConfig;

/// Binds an option to the member that `access` returns for a RunConfig, const or not. The help shows
/// `fallback`, or where that is empty the member's own default.
template <typename Access>
Option declare_option(std::string group, std::string name, std::string argument, std::string help,
                      std::string fallback, Access access) {
  using Value = std::remove_cvref_t<decltype(access(std::declval<RunConfig&>()))>;
  Option option;
  if constexpr (std::is_same_v<Value, bool>) option.kind = Option::Kind::toggle;
  if constexpr (std::is_same_v<Value, decltype(train::ModelConfig::options)>)
    option.kind = Option::Kind::list;
  if (fallback.empty()) {
    const RunConfig defaults;
    if constexpr (std::is_same_v<Value, std::string>) {
      fallback = access(defaults);
    } else if constexpr (std::is_same_v<Value, bool>) {
      fallback = "off";
    } else if constexpr (std::is_arithmetic_v<Value>) {
      fallback = fmt::format("{}", access(defaults));
    }
  }
  option.set = [name, access](RunConfig& config, const std::string& text) {
    read_value(text, name, access(config));
  };
  option.toml = [access](const RunConfig& config) { return write_toml(access(config)); };
  option.name = std::move(name);
  option.argument = std::move(argument);
  option.group = std::move(group);
  option.help = std::move(help);
  option.fallback = std::move(fallback);
  return option;
}

/// `--record-steps` counts, but its ends have names.
Option record_steps(const std::string& group) {
  Option option;
  option.name = "record-steps";
  option.argument = "N|all|off";
  option.group = group;
  option.help = "record each Nth step";
  option.fallback = "all";
  option.set = [](RunConfig& config, const std::string& text) {
    int& every = config.output.record_steps;
    if (text == "all") {
      every = 1;
    } else if (text == "off") {
      every = 0;
    } else {
      read_value(text, "record-steps", every);
    }
  };
  option.toml = [](const RunConfig& config) {
    const int every = config.output.record_steps;
    if (every == 0) return std::string("\"off\"");
    return every == 1 ? std::string("\"all\"") : write_toml(every);
  };
  return option;
}

std::vector<Option> declare() {
  const std::string by_model = "by model";
  std::vector<Option> all;
  std::string group = "What is trained";
  const auto add = [&](auto... parts) { all.push_back(declare_option(group, parts...)); };

  add(
      "model", "NAME", "the network", "", [](auto& c) -> auto& { return c.model.name; });
  add(
      "model-option", "KEY=VALUE", "an option of the model; may be repeated", "",
      [](auto& c) -> auto& { return c.model.options; });
  add(
      "init-from", "PATH", "weights to start with: a checkpoint, an .h5 or a .safetensors", "",
      [](auto& c) -> auto& { return c.model.init_from; });
  add(
      "init-skip", "REGEX", "names of weights that --init-from leaves as they are", "",
      [](auto& c) -> auto& { return c.model.init_skip; });
  add(
      "loss", "NAME", "cross_entropy, mse or mae", "by task", [](auto& c) -> auto& { return c.model.loss; });
  // Not written while it is open: the task is not known before the dataset is.
  all.back().toml = [](const RunConfig& c) {
    return c.model.loss.empty() ? std::string() : write_toml(c.model.loss);
  };
  add(
      "class-weights", "none|balanced", "balanced: rare classes count more in the training loss", "",
      [](auto& c) -> auto& { return c.model.class_weights; });
  add(
      "label-smoothing", "R",
      "of each target's probability in training, what is spread over all classes or words", "",
      [](auto& c) -> auto& { return c.model.label_smoothing; });
  add(
      "freeze", "REGEX", "names of parameters that are not trained (fine-tuning with --init-from)", "",
      [](auto& c) -> auto& { return c.model.freeze; });
  add(
      "dataset", "NAME|FOLDER", "synthetic, or a staged dataset", "",
      [](auto& c) -> auto& { return c.data.dataset; });
  add(
      "data-root", "FOLDER", "where staged datasets lie", "", [](auto& c) -> auto& { return c.data.root; });
  add(
      "staging", "none|memory|local=DIR", "copy the shards first: one per node, in memory or into DIR", "",
      [](auto& c) -> auto& { return c.data.staging; });

  add(
      "augment", "off|on|flip|crop|crop+flip", "random crops and flips of training images; on: crop+flip",
      by_model, [](auto& c) -> auto& { return c.data.augment; });
  add(
      "augment-padding", "N", "zeros around an image before it is cropped", "",
      [](auto& c) -> auto& { return c.data.augment_padding; });
  // Not written where it means nothing: a file that is fed back must not be refused.
  all.back().toml = [](const RunConfig& c) {
    return c.data.crops() ? write_toml(c.data.augment_padding) : std::string();
  };

  group = "How the work is split";
  add(
      "mesh", "AXES", "ranks along each axis, such as data=4,pipe=2", "data=N",
      [](auto& c) -> auto& { return c.mesh; });
  add(
      "rank-order", "placed|launched", "on the mesh: by where ranks run, or as the launcher numbered them",
      "", [](auto& c) -> auto& { return c.rank_order; });
  add(
      "strategy", "NAME", "how the copies agree: ddp", "", [](auto& c) -> auto& { return c.strategy; });
  add(
      "global-batch", "N", "samples per step, over all ranks", by_model,
      [](auto& c) -> auto& { return c.batch.global_batch; });
  add(
      "micro-batches", "M",
      "pieces that a step is cut into (gradient accumulation); equal M gives equal results",
      "one per data rank; with pipe=P 4 P times as many",
      [](auto& c) -> auto& { return c.batch.micro_batches; });
  // Not written while it is open, so that a file made for any number of ranks can be fed back.
  all.back().toml = [](const RunConfig& c) {
    return c.batch.micro_batches == 0 ? std::string() : write_toml(c.batch.micro_batches);
  };

  add(
      "eval-batch", "N", "samples that evaluation takes at once on a rank; 0: as memory allows", "",
      [](auto& c) -> auto& { return c.batch.evaluation; });
  add(
      "pipeline", "NAME", "with pipe=P in the mesh: 1f1b, gpipe, interleaved or layerwise", "",
      [](auto& c) -> auto& { return c.pipeline.schedule; });
  add(
      "virtual-stages", "V", "stages per rank of the interleaved pipeline", "",
      [](auto& c) -> auto& { return c.pipeline.virtual_stages; });
  // Not written where it means nothing: a file that is fed back must not be refused.
  all.back().toml = [](const RunConfig& c) {
    return c.pipeline.schedule == "interleaved" ? write_toml(c.pipeline.virtual_stages) : std::string();
  };
  add(
      "balance", "none|dynamic", "stages of like FLOPs, or of like measured time", "",
      [](auto& c) -> auto& { return c.pipeline.balance; });
  add(
      "recompute", "none|full|auto", "compute activations again in backward; auto: what the limit asks for",
      "", [](auto& c) -> auto& { return c.pipeline.recompute; });
  add(
      "memory-limit", "SIZE", "what a rank's tensors may take, such as 2GiB", "",
      [](auto& c) -> auto& { return c.pipeline.memory_limit; });

  group = "How it is trained";
  add(
      "epochs", "N", "passes over the training data", by_model, [](auto& c) -> auto& { return c.epochs; });
  add(
      "limit-steps", "N", "end after N steps in all; 0: no limit", "",
      [](auto& c) -> auto& { return c.limit_steps; });
  add(
      "exit-after", "TIME", "stop after so long, such as 55min, and leave what --resume goes on from", "",
      [](auto& c) -> auto& { return c.exit_after; });
  add(
      "optimizer", "NAME", "sgd, adam or adamw", by_model, [](auto& c) -> auto& { return c.optimizer.name; });
  add(
      "learning-rate", "R", "the highest rate of the schedule", by_model,
      [](auto& c) -> auto& { return c.optimizer.learning_rate; });
  add(
      "momentum", "R", "of sgd", by_model, [](auto& c) -> auto& { return c.optimizer.momentum; });
  add(
      "nesterov", "", "Nesterov's form of sgd's momentum", "",
      [](auto& c) -> auto& { return c.optimizer.nesterov; });
  const auto of_adam = [&](const char* name, const char* help, const std::string& fallback, auto access) {
    add(name, "R", help, fallback, access);
    // Not written where it means nothing: a file that is fed back must not be refused.
    all.back().toml = [access](const RunConfig& c) {
      return c.optimizer.adaptive() ? write_toml(access(c)) : std::string();
    };
  };
  of_adam(
      "beta1", "decay rate of the first moment of adam and adamw", by_model,
      [](auto& c) -> auto& { return c.optimizer.beta1; });
  of_adam(
      "beta2", "decay rate of the second moment of adam and adamw", by_model,
      [](auto& c) -> auto& { return c.optimizer.beta2; });
  of_adam(
      "epsilon", "what adam and adamw add to the root of the second moment", "",
      [](auto& c) -> auto& { return c.optimizer.epsilon; });
  add(
      "weight-decay", "R", "pull of the weights towards 0", by_model,
      [](auto& c) -> auto& { return c.optimizer.weight_decay; });
  add(
      "decay", "all|matrices", "what weight decay is of; matrices: not of biases and norms", by_model,
      [](auto& c) -> auto& { return c.optimizer.decay; });
  add(
      "schedule", "NAME", "constant, step, cosine, one_cycle, linear or wsd", by_model,
      [](auto& c) -> auto& { return c.optimizer.schedule; });
  add(
      "warmup-steps", "N", "steps over which the rate rises first; one_cycle has its own", by_model,
      [](auto& c) -> auto& { return c.optimizer.warmup_steps; });
  add(
      "min-learning-rate", "R", "the rate that the schedule falls to", "",
      [](auto& c) -> auto& { return c.optimizer.min_learning_rate; });
  add(
      "grad-clip", "R", "largest norm of the gradient; 0: no limit", by_model,
      [](auto& c) -> auto& { return c.optimizer.grad_clip; });
  add(
      "batch-norm", "local", "what BatchNorm's statistics are of: each micro-batch", "",
      [](auto& c) -> auto& { return c.batch_norm; });
  add(
      "precision", "NAME", "fp32, fp64, or with fp32 weights and products in half precision: bf16, fp16", "",
      [](auto& c) -> auto& { return c.precision; });
  add(
      "seed", "N", "start of all random numbers", "", [](auto& c) -> auto& { return c.seed; });
  add(
      "reproducible", "",
      "the same bits on any number of ranks along data and pipe; sets 8 micro-batches, 1 thread", "",
      [](auto& c) -> auto& { return c.reproducible; });

  group = "Where it runs";
  add(
      "device", "auto|cpu|cuda", "what computes; auto: GPUs where all ranks have some", "",
      [](auto& c) -> auto& { return c.device; });
  add(
      "device-graphs", "auto|off", "on GPUs, replay steps as CUDA graphs where that can be done", "",
      [](auto& c) -> auto& { return c.device_graphs; });
  add(
      "threads", "N", "compute threads per rank; 0: from the affinity mask", "",
      [](auto& c) -> auto& { return c.threads; });
  add(
      "kernels", "own|libtorch",
      "dtrain's own kernels where they are faster, or LibTorch's operators alone: a check of both", "",
      [](auto& c) -> auto& { return c.kernels; });
  add(
      "comm-backend", "auto|mpi|nccl", "what carries data between GPUs; mpi: through the CPU's memory", "",
      [](auto& c) -> auto& { return c.comm.backend; });
  add(
      "all-reduce", "NAME", "auto, mpi, ring, tree or hierarchical", "",
      [](auto& c) -> auto& { return c.comm.all_reduce; });
  add(
      "bucket-mb", "X", "MiB of gradients that travel together; 0: chosen", "",
      [](auto& c) -> auto& { return c.comm.bucket_mb; });
  add(
      "watchdog", "S", "seconds that a collective may take", "",
      [](auto& c) -> auto& { return c.comm.watchdog_s; });
  add(
      "on-failure", "auto|recover|abort",
      "when a rank is lost: go on without it (auto: where MPI can), or end", "",
      [](auto& c) -> auto& { return c.on_failure; });
  add(
      "spares", "N", "ranks that wait, and take the places of lost ones", "",
      [](auto& c) -> auto& { return c.spares; });
  add(
      "replicate", "off|K", "steps between copies of each rank's part in another's memory", "",
      [](auto& c) -> auto& { return c.replicate; });
  add(
      "verify-every", "N",
      "steps between comparisons of the ranks' weights, and all collectives between nodes are compared; 0: "
      "never",
      "", [](auto& c) -> auto& { return c.verify_every; });
  add(
      "inject", "FAULT", "a fault on demand, such as kill:rank=1,phase=backward,step=7", "none",
      [](auto& c) -> auto& { return c.inject; });

  group = "What it leaves behind";
  add(
      "output", "FOLDER", "where run folders are made", "", [](auto& c) -> auto& { return c.output.folder; });
  add(
      "name", "NAME", "the run's folder", "MODEL-DATASET-JOB or -TIME",
      [](auto& c) -> auto& { return c.output.name; });
  add(
      "overwrite", "", "replace a run of that name", "", [](auto& c) -> auto& { return c.output.overwrite; });
  add(
      "resume", "auto|none|PATH", "go on with the run of that name, or from a checkpoint's folder", "",
      [](auto& c) -> auto& { return c.output.resume; });
  add(
      "checkpoint-every", "end|INTERVAL", "save each 500steps, 1epoch or 10min; end: only then", "",
      [](auto& c) -> auto& { return c.output.checkpoint_every; });
  add(
      "keep", "N", "checkpoints that stay, the best one besides", "",
      [](auto& c) -> auto& { return c.output.keep; });
  all.push_back(record_steps(group));
  add(
      "trace", "", "write trace.json for Chrome's tracing or Perfetto", "",
      [](auto& c) -> auto& { return c.output.trace; });
  add(
      "tensorboard", "", "write event files for TensorBoard", "",
      [](auto& c) -> auto& { return c.output.tensorboard; });
  add(
      "quiet", "", "print nothing but errors", "", [](auto& c) -> auto& { return c.output.quiet; });
  add(
      "dry-run", "", "show placement, memory and the first batch's shapes, then exit", "",
      [](auto& c) -> auto& { return c.dry_run; });
  add(
      "cluster", "NODESxRANKS", "with --dry-run: as if on so many nodes with so many ranks each", "",
      [](auto& c) -> auto& { return c.cluster; });
  return all;
}

}  // namespace

const std::vector<Option>& run_options() {
  static const std::vector<Option> kOptions = declare();
  return kOptions;
}

void apply(const Option& option, const std::string& text, train::RunConfig& config) {
  option.set(config, text);
  config.given.insert(option.name);
}

std::string to_toml(const train::RunConfig& config) {
  std::string text;
  std::string group;
  for (const Option& option : run_options()) {
    if (option.group != group) {
      text += fmt::format("{}# {}\n", group.empty() ? "" : "\n", option.group);
      group = option.group;
    }
    const std::string value = option.toml(config);
    text += value.empty() ? fmt::format("# {} =  # {}\n", option.name,
                                        option.fallback.empty() ? option.argument : option.fallback)
                          : fmt::format("{} = {}\n", option.name, value);
  }
  return text;
}

}  // namespace dtrain::app
