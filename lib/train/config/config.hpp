#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "comm/comm_config.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "parallel/pipeline/stage_moves.hpp"
#include "parallel/strategy/strategy_options.hpp"
#include "record/trace_window.hpp"
#include "state/interval.hpp"
#include "topology/fabric.hpp"
#include "topology/mesh.hpp"

namespace dtrain::train {

/// What is trained.
struct ModelConfig {
  std::string name = "mlp";  ///< A name of models::registry(), or a file NET.pt2.
  std::string given_name;    ///< The file that was named, where `name` is the run's own copy of it; or empty.
  std::map<std::string, std::string> options;  ///< `--model-option KEY=VALUE`, unparsed.
  std::string init_from;  ///< A checkpoint, an .h5 or a .safetensors whose weights it starts with; or empty.
  bool init_is_checked = false;  ///< All its files are known to be whole. Set where a run is resumed.
  std::string init_skip;  ///< Names that keep their own start: a regular expression (ECMAScript), or empty.
  std::string loss;       ///< `cross_entropy`, `mse`, `mae` or a file's own, `model`; empty: by task.
  std::string class_weights = "none";  ///< Of the training loss: `none` or `balanced`.
  double label_smoothing = 0.0;        ///< Of the training loss, in [0, 1).
  std::string freeze;                  ///< Parameters that are not trained: a regular expression, or empty.
  std::string golden =
      "on";  ///< Whether a file's golden batch is computed again at the start: `on` or `off`.
};

/// What it is trained on, and where the shards are read from.
struct DataConfig {
  std::string dataset = "synthetic";  ///< `synthetic`, the name of a staged dataset, or a folder.
  std::string root = "data/staged";   ///< Where named datasets lie.
  std::string staging = "none";       ///< `none`, `memory` (one copy per node) or `local=DIR`.
  std::string augment = "off";  ///< Of training images: `off`, `flip`, `crop`, `crop+flip`, or `on`: both.
  int augment_padding = 4;      ///< Zeros around an image before it is cropped.

  bool flips() const { return augment == "on" || augment == "flip" || augment == "crop+flip"; }
  bool crops() const { return augment == "on" || augment == "crop" || augment == "crop+flip"; }
};

/// How a step is cut.
struct BatchConfig {
  int global_batch = 64;  ///< Samples per step, over all ranks.
  int micro_batches = 0;  ///< Pieces per step, over all ranks; 0 until resolve(): then one per data rank.
  bool adaptive = false;  ///< A step takes as many of these batches as the noise of its gradient asks for.
  int evaluation = 0;     ///< Samples per forward pass of an evaluation, on each data rank; 0: chosen.
};

/// Samples of a step's largest micro-batch.
inline int samples_of_largest_piece(const BatchConfig& batch) {
  const int pieces = batch.micro_batches > 0 ? batch.micro_batches : 1;
  return (batch.global_batch + pieces - 1) / pieces;
}

/// How one copy of the model is executed where the mesh has a pipe axis.
struct PipelineConfig {
  std::string schedule = "1f1b";  ///< Of parallel::parse_pipelining().
  int virtual_stages = 2;         ///< Stages per rank of interleaved.
  /// `none`: stages of like work; `dynamic`: of like measured time; `data`: micro-batches by measured speed.
  std::string balance = "none";
  std::string recompute = "none";     ///< Layers run again in backward: `none`, `full`, or `auto`.
  std::string memory_limit = "none";  ///< What a rank's tensors may take, such as `2GiB`.

  parallel::StageCosts measured = {};  ///< Not an option: by an earlier part of the run.
  std::string chosen;  ///< Not an option: what memory_limit has chosen, for people; mostly empty.

  /// 0: no limit. Throws Error (exit code 2) when the text is no size.
  std::int64_t memory_limit_bytes() const;
};

/// When the model is validated, and what follows.
struct ValidationConfig {
  std::string every = "1epoch";  ///< `1epoch`, or `Nsteps`: then within epochs, too.
  std::string best_by = "loss";  ///< What the best model has: the least `loss`, or the highest `accuracy`.
  int early_stopping = 0;        ///< Validations in a row without a better one that end the run; 0: none do.

  /// Steps between validations within an epoch; 0: there are none. Throws Error (exit code 2) when `every` is
  /// something else.
  std::int64_t every_steps() const;
};

/// The update.
struct UpdateConfig {
  optim::OptimizerConfig rule;
  optim::ScheduleConfig schedule;
  int recipe_warmup_steps = 0;  ///< Which a shorter run shortens in `schedule`; 0: the user gave a number.
  double grad_clip = 0.0;       ///< Largest norm of the whole gradient; 0: no limit.
  std::string decay = "all";    ///< What weight decay is of: `all`, or `matrices` (two dims or more).
};

/// What the run leaves behind, under `folder`/`name`.
struct OutputConfig {
  std::string folder = "runs";
  std::string name;  ///< Never empty once the run has begun; rank 0 decides the default.
  bool overwrite = false;
  std::string checkpoint_every = "1epoch";  ///< Or `end`, or an interval such as `500steps` or `10min`.
  int keep = 3;                             ///< Checkpoints that stay, `best` not counted.
  std::string resume = "auto";  ///< `auto`: the run of that name; `none`; a run's folder or a checkpoint's.
  /// Of a checkpoint's folder: `exact` (same settings), or with others of the update `keep` or `reset`.
  std::string optimizer_state = "exact";
  int record_steps = 1;  ///< Each Nth step is recorded: 1 all, 0 none.
  bool trace = false;
  std::string trace_steps = "all";  ///< Or those of which spans are written, such as `100-110`.
  bool tensorboard = false;
  bool quiet = false;
  bool terminal = false;  ///< A person watches: draw the progress in place. Set by app.

  /// `checkpoint_every` parsed; never: at the end only. Throws Error (exit code 2).
  state::Interval checkpoint_interval() const;

  bool traces() const { return trace || trace_steps != "all"; }
  /// `trace_steps` parsed. Throws Error (exit code 2).
  record::TraceWindow trace_window() const;
};

/// All of a run's options, with the defaults they have where neither the user nor the model's recipe gives
/// another value. Filled in app/, resolved and validated once, and const from then on.
struct RunConfig {
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  PipelineConfig pipeline;
  UpdateConfig update;
  ValidationConfig validation;
  comm::CommConfig comm;  ///< How ranks talk; setup adds what it finds on the machine.
  OutputConfig output;

  std::string mesh;                ///< As given, e.g. `data=4`; empty: all ranks along data.
  topology::MeshShape mesh_shape;  ///< What `mesh` means on this many ranks; set by resolve().
  double bucket_mb = 0.0;          ///< Size of a gradient bucket, in 2^20 bytes; 0: chosen.
  std::string strategy = "ddp";
  parallel::StrategyOptions strategy_options;
  int epochs = 10;
  int limit_steps = 0;  ///< Steps after which the run ends, in all; 0: no limit.
  std::string exit_after =
      "none";  ///< Time after which the run is to stop and can be resumed, such as `55min`.
  std::string batch_norm = "local";    ///< Statistics of each micro-batch.
  std::string precision = "fp32";      ///< `fp32`, `fp64`, or mixed: `bf16`, `fp16`.
  bool tf32 = false;                   ///< Devices multiply fp32 as parallel::use_tf32() says.
  std::string device = "auto";         ///< See parallel::is_device_name().
  std::string device_graphs = "auto";  ///< `auto` or `off`: whether steps are captured and replayed there.
  std::string kernels = "auto";        ///< What layers compute with: see kernels_of().
  int threads = 0;                     ///< Per rank; 0: from the affinity mask.
  std::uint64_t seed = 1;
  bool reproducible = false;        ///< The same bits on every number of ranks, of data and pipe.
  std::string inject;               ///< Faults on demand, as comm::parse_faults() reads them; empty: none.
  std::string emulate;              ///< A file that describes a machine to emulate; empty: none.
  topology::Fabric fabric;          ///< What it says; set by app.
  std::string on_failure = "auto";  ///< `auto`, `recover` or `abort`, when a rank is lost.
  int spares = 0;                   ///< Ranks that wait to take the places of lost ones.
  std::string replicate = "off";    ///< Or steps between copies of each part in another rank's memory.
  int verify_every = 0;             ///< Steps between comparisons of the copies of the weights; 0: none.
  bool dry_run = false;
  bool all_ranks = false;  ///< A dry run lists every rank.
  std::string cluster;     ///< `NODESxRANKS`, invented for a dry run; empty: the ranks that were started.

  /// Where tables of the fastest all_reduce are kept from run to run; empty: nowhere. Set by app.
  std::string table_file;
  std::string switches;  ///< Above this rank's node, as topology::RankPlace has them. Set by app.

  /// Options that the user set, by flag or file, named as on the command line without dashes.
  std::set<std::string> given;
  std::string text;          ///< The effective configuration as TOML, for records; set by app.
  std::string command_line;  ///< As typed, for records.

  /// What CommConfig::timeout_s is for phases in which ranks copy, read or write files, which may take some
  /// of them long.
  double files_limit_s() const { return std::max(comm.timeout_s, 3600.0); }

  /// `replicate` as a number of steps; 0: off. Throws Error (exit code 2) when it is neither.
  std::int64_t replicate_every() const;

  /// Of the time that checkpoints at the ends of epochs may take; 0, where the user asks for them: any.
  double most_checkpoint_share() const { return given.contains("checkpoint-every") ? 0 : 0.02; }

  /// Whether parameters are to be in another memory than the CPU's.
  bool computes_on_device() const { return device != "auto" && device != "cpu"; }

  /// Of a bucket of gradients; 0: chosen by the size of the model. Each bucket ends a part of a device's
  /// graph and starts an operation there: devices take fewer and larger ones than a CPU's caches would.
  std::int64_t bucket_bytes() const {
    constexpr double kDeviceBucketMb = 32;
    const double mb = bucket_mb == 0 && computes_on_device() ? kDeviceBucketMb : bucket_mb;
    return static_cast<std::int64_t>(mb * 1024 * 1024);
  }

  /// Steps of the whole run, of which an epoch has so many.
  std::int64_t total_steps(std::int64_t steps_of_epoch) const {
    const std::int64_t all = epochs * steps_of_epoch;
    return limit_steps > 0 ? std::min<std::int64_t>(all, limit_steps) : all;
  }

  /// Stages that each rank of a pipeline holds.
  int stages_per_rank() const { return pipeline.schedule == "interleaved" ? pipeline.virtual_stages : 1; }

  /// The invented cluster's nodes and ranks per node. Throws Error (exit code 2) unless both are positive.
  std::pair<int, int> cluster_extents() const;

  /// Fills what depends on the number of ranks, mesh_shape and micro_batches, and with `reproducible` does
  /// not. Throws Error (exit code 2) when the mesh does not fit.
  void resolve(int world_size);
  int started_ranks = 0;  ///< All that the job had at the start, spares included; set by app.

  /// Throws Error (exit code 2), naming the option, at the first value that cannot work.
  /// Purely local: every rank finds the same error.
  void validate() const;
};

/// Whether micro-batches are dealt by the speed of the data ranks: one alone has all.
inline bool balances_data(const RunConfig& config) {
  return config.pipeline.balance == "data" && config.mesh_shape.data > 1;
}

/// Whether layers move between the stages of a pipeline by measured time.
inline bool balances_stages(const RunConfig& config) {
  return config.pipeline.balance == "dynamic" && config.mesh_shape.pipe > 1;
}

}  // namespace dtrain::train
