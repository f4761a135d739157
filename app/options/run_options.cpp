#include <limits>

#include "models/model.hpp"
#include "options/declare_option.hpp"
#include "options/option.hpp"
#include "options/option_value.hpp"
#include "parallel/strategy/registry.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/limits.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::app {
namespace {

using train::RunConfig;

/// `--record-steps` counts, but its ends have names.
Option record_steps(const std::string& group) {
  Option option;
  option.name = "record-steps";
  option.argument = "N|all|off";
  option.group = group;
  option.help = "record every Nth step";
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

/// `a|b|c` of the names in a registry.
template <typename Entries>
std::string names_with_bars(const Entries& entries) {
  std::string text;
  for (const auto& entry : entries) text += (text.empty() ? "" : "|") + entry.name;
  return text;
}

std::string model_argument() { return names_with_bars(models::registry()) + "|NET.pt2"; }
std::string strategy_argument() { return names_with_bars(parallel::strategies()); }

std::vector<Option> declare() {
  const std::string by_model = "by model";
  std::vector<Option> all;
  std::string group = "What is trained";
  const auto add = [&](auto... parts) { all.push_back(declare_option(group, parts...)); };

  add(
      "model", model_argument(), "the network; NET.pt2: a file of torch.export.save", "",
      [](auto& c) -> auto& { return c.model.name; });
  add(
      "model-option", "KEY=VALUE", "an option of the model; repeat it for several", "",
      [](auto& c) -> auto& { return c.model.options; });
  add(
      "golden", "on|off", "compute the golden batch that a NET.pt2 may hold, and compare, before training",
      "", [](auto& c) -> auto& { return c.model.golden; });
  add(
      "init-from", "PATH", "initial weights: a checkpoint, a run's folder, an .h5 or a .safetensors", "",
      [](auto& c) -> auto& { return c.model.init_from; });
  add(
      "init-skip", "REGEX", "names of weights that --init-from does not load", "",
      [](auto& c) -> auto& { return c.model.init_skip; });
  add(
      "loss", "cross_entropy|mse|mae|model",
      "what training lowers; model: what a NET.pt2 itself returns; a plug-in adds its own", "by task",
      [](auto& c) -> auto& { return c.model.loss; });
  // Not written while it is open: the task is not known before the dataset is.
  all.back().toml = [](const RunConfig& c) {
    return c.model.loss.empty() ? std::string() : write_toml(c.model.loss);
  };
  add(
      "class-weights", "none|balanced", "balanced: rare classes count more in the training loss", "",
      [](auto& c) -> auto& { return c.model.class_weights; });
  add(
      "label-smoothing", "R",
      "part of each target's probability to spread over all classes or words in training", "",
      [](auto& c) -> auto& { return c.model.label_smoothing; });
  add(
      "freeze", "REGEX", "names of parameters not to train (fine-tuning with --init-from)", "",
      [](auto& c) -> auto& { return c.model.freeze; });
  add(
      "dataset", "NAME|FOLDER", "synthetic, or a staged dataset by name or folder", "",
      [](auto& c) -> auto& { return c.data.dataset; });
  add(
      "data-root", "FOLDER", "folder of staged datasets", "", [](auto& c) -> auto& { return c.data.root; });
  add(
      "staging", "none|memory|local=DIR",
      "copy the shards to each node first, into memory or into DIR: where the shared file system is slow", "",
      [](auto& c) -> auto& { return c.data.staging; });

  add(
      "augment", "off|on|flip|crop|crop+flip", "random crops and flips of training images; on: crop+flip",
      by_model, [](auto& c) -> auto& { return c.data.augment; });
  add(
      "augment-padding", "N", "zeros around an image before the crop", "",
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
      "rank-order", "placed|launched",
      "order of ranks on the mesh: by placement, or as the launcher numbered them, to compare with", "",
      [](auto& c) -> auto& { return c.comm.order; });
  // Secure sums keep the launched order: a file that is fed back must not be refused.
  all.back().toml = [](const RunConfig& c) {
    const bool keeps = c.strategy_options.federated.secure.on();
    return write_toml(keeps ? topology::RankOrder::launched : c.comm.order);
  };
  add(
      "strategy", strategy_argument(),
      "how the copies of the model agree: " + parallel::strategies_in_words(), "",
      [](auto& c) -> auto& { return c.strategy; });
  // Not written where it means nothing: a file that is fed back must not be refused.
  const auto of_strategy = [&](const std::string& name, const char* argument, const char* help,
                               const std::string& fallback, auto access) {
    add(name, argument, help, fallback, access);
    all.back().toml = [name, access](const RunConfig& c) {
      return train::uses_strategy_option(c, name) ? write_toml(access(c)) : std::string();
    };
  };
  of_strategy(
      "compression", "none|fp16|bf16|int8|powersgd=R|topk=F|auto",
      "how gradients travel between nodes (ddp, zero1; fp16, bf16 and int8 also with zero2 and zero3 by "
      "--shard-within node). fp16, bf16, int8: in 16 or 8 bits, rounded by chance; powersgd: as factors of "
      "rank R; topk: the share F of them that is largest; auto: as is fastest",
      "", [](auto& c) -> auto& { return c.strategy_options.compression; });
  // Not written unless it is wanted: a file of a usual run serves with any strategy.
  all.back().toml = [](const RunConfig& c) {
    const auto& wanted = c.strategy_options.compression;
    return train::uses_strategy_option(c, "compression") && wanted != "none" ? write_toml(wanted)
                                                                             : std::string();
  };
  of_strategy(
      "compression-after", "STEPS",
      "first steps of the training in which gradients travel in all their bits (with --compression, but "
      "auto)",
      "", [](auto& c) -> auto& { return c.strategy_options.compression_after; });
  of_strategy(
      "shard-within", "all|node",
      "ranks that share the state out: all copies, or those of each node, which then has all of it "
      "(zero1, zero2, zero3): node where links between nodes are slow",
      "", [](auto& c) -> auto& { return c.strategy_options.shard_within; });
  of_strategy(
      "dp-clip", "R",
      "differential privacy: the largest norm of a sample's gradient (ddp, fedavg) or of a client's update "
      "(fedavg), before noise is added; 0: off",
      "", [](auto& c) -> auto& { return c.strategy_options.dp_clip; });
  of_strategy(
      "dp-noise", "R", "standard deviation of the noise, in multiples of --dp-clip",
      "what --target-epsilon needs", [](auto& c) -> auto& { return c.strategy_options.dp_noise; });
  of_strategy(
      "target-epsilon", "R", "choose the noise for this epsilon, and end the run before it releases more",
      "none", [](auto& c) -> auto& { return c.strategy_options.target_epsilon; });
  of_strategy(
      "dp-delta", "R", "probability that epsilon does not hold, in (0, 1)", "",
      [](auto& c) -> auto& { return c.strategy_options.dp_delta; });
  of_strategy(
      "dp-sampler", "poisson|once",
      "samples of a private step: each by chance, or each once in an epoch in a random step (ddp)", "",
      [](auto& c) -> auto& { return c.strategy_options.dp_sampler; });
  of_strategy(
      "dp-accountant", "rdp|pld",
      "what counts epsilon: Renyi divergences, which is quick, or distributions of the privacy loss, whose "
      "epsilon is smaller",
      "", [](auto& c) -> auto& { return c.strategy_options.dp_accountant; });
  of_strategy(
      "noise-source", "secure|seeded", "of the noise; seeded, for tests: by --seed, which protects nothing",
      "", [](auto& c) -> auto& { return c.strategy_options.noise_source; });
  of_strategy(
      "dp-unit", "record|client",
      "what is protected: each sample of a client, in its local steps, or each client with all its samples "
      "(fedavg)",
      "", [](auto& c) -> auto& { return c.strategy_options.dp_unit; });
  of_strategy(
      "dp-adaptive-clip", "Q",
      "let the clip of updates follow this quantile of their norms, such as 0.5 (fedavg); 0: it stays", "",
      [](auto& c) -> auto& { return c.strategy_options.dp_adaptive_clip; });
  of_strategy(
      "sync-period", "H|adaptive",
      "steps of a copy's own between two exchanges (local_sgd, easgd); adaptive: fewer as the loss falls", "",
      [](auto& c) -> auto& { return c.strategy_options.sync_period; });
  of_strategy(
      "sync-optimizer", "keep|average|reset", "optimizer state of the copies when they average (local_sgd)",
      "", [](auto& c) -> auto& { return c.strategy_options.sync_optimizer; });
  of_strategy(
      "local-after", "STEPS", "first steps in which the copies agree on each, as with ddp (local_sgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.local_after; });
  of_strategy(
      "outer-optimizer", "none|nesterov", "update with what a round has changed, after the mean (local_sgd)",
      "", [](auto& c) -> auto& { return c.strategy_options.outer_optimizer; });
  of_strategy(
      "outer-learning-rate", "R", "learning rate of the outer update", "",
      [](auto& c) -> auto& { return c.strategy_options.outer_learning_rate; });
  of_strategy(
      "outer-momentum", "R", "momentum of the outer update", "",
      [](auto& c) -> auto& { return c.strategy_options.outer_momentum; });
  of_strategy(
      "fragments", "F", "parts of the parameters, exchanged one after another within a round (local_sgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.fragments; });
  of_strategy(
      "overlap-steps", "D", "steps that a copy makes while a part travels, before it arrives (local_sgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.overlap_steps; });
  of_strategy(
      "exchange-type", "full|bfloat16|int8",
      "how changes of the parameters travel: in their own type, in 16 or in 8 bits (local_sgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.exchange_type; });
  of_strategy(
      "easgd-mode", "rounds|asynchronous",
      "all copies meet the centre at once, or each when it comes, on servers (easgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.easgd_mode; });
  of_strategy(
      "elasticity", "R", "how far a copy moves to the centre in an exchange, in (0, 1) (easgd)",
      "0.9 / copies", [](auto& c) -> auto& { return c.strategy_options.elasticity; });
  of_strategy(
      "servers", "N",
      "ranks that keep the parameters, a part each, and compute nothing (asgd, easgd); 0: all, beside "
      "computing",
      "", [](auto& c) -> auto& { return c.strategy_options.servers; });
  of_strategy(
      "staleness", "S", "steps that a copy may be ahead of the slowest (asgd); 0: lock-step, as with ddp", "",
      [](auto& c) -> auto& { return c.strategy_options.staleness; });
  of_strategy(
      "staleness-rate", "constant|divided",
      "learning rate of late updates: the usual, or divided by the updates that came between (asgd)", "",
      [](auto& c) -> auto& { return c.strategy_options.staleness_rate; });
  add(
      "global-batch", "N", "samples per step, over all ranks", by_model,
      [](auto& c) -> auto& { return c.batch.global_batch; });
  // A federated run has others in the place of these.
  const auto not_of_clients = [&all] {
    all.back().toml = [usual = all.back().toml](const RunConfig& c) {
      return train::is_federated(c) ? std::string() : usual(c);
    };
  };
  not_of_clients();
  add(
      "micro-batches", "M",
      "micro-batches of a step (gradient accumulation); equal M gives equal results, to rounding",
      "one per data rank; with pipe=P 4 P times as many, with --balance data 4 times",
      [](auto& c) -> auto& { return c.batch.micro_batches; });
  // Not written while it is open, so that a file made for any number of ranks can be fed back.
  all.back().toml = [](const RunConfig& c) {
    return c.batch.micro_batches == 0 ? std::string() : write_toml(c.batch.micro_batches);
  };
  not_of_clients();

  of_strategy(
      "partition", "iid|sites|dirichlet=A|classes=K|quantity=A|pooled",
      "how clients hold the training samples: by chance, by the dataset's owners, shares of each class, K "
      "classes each, unequal numbers, or one has all (fedavg)",
      "sites where the dataset has them, else iid",
      [](auto& c) -> auto& { return c.strategy_options.federated.partition; });
  of_strategy(
      "clients", "N", "clients that hold the samples (fedavg)", "one for each site, else 10",
      [](auto& c) -> auto& { return c.strategy_options.federated.clients; });
  of_strategy(
      "clients-per-round", "N", "clients that are sampled for a round (fedavg)", "all",
      [](auto& c) -> auto& { return c.strategy_options.federated.clients_per_round; });
  of_strategy(
      "rounds", "N", "rounds of a federated run, in the place of epochs (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.rounds; });
  of_strategy(
      "local-epochs", "N", "passes of a client over its samples in a round (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.local_epochs; });
  of_strategy(
      "local-batch", "N|all", "samples of a client's local step (fedavg)", "the model's batch",
      [](auto& c) -> auto& { return c.strategy_options.federated.local_batch; });
  of_strategy(
      "federated-rule", "fedavg|fednova|scaffold|local",
      "fednova: updates divided by their local steps; scaffold: local steps corrected by control variates; "
      "local: clients train alone, to compare with (fedavg)",
      "", [](auto& c) -> auto& { return c.strategy_options.federated.rule; });
  of_strategy(
      "proximal-mu", "MU", "FedProx: how strongly local weights are held to the global ones (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.proximal_mu; });
  of_strategy(
      "server-optimizer", "none|momentum|adam|yogi",
      "what the server does with the mean update: FedAvg, FedAvgM, FedAdam, FedYogi (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.server_optimizer; });
  of_strategy(
      "server-rate", "R", "learning rate of the server (fedavg)", "1; adam, yogi: 0.01",
      [](auto& c) -> auto& { return c.strategy_options.federated.server_rate; });
  of_strategy(
      "server-momentum", "R", "momentum of the server, beta 1 of adam and yogi (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.server_momentum; });
  of_strategy(
      "drop-rate", "P", "probability that a sampled client hands nothing in (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.drop_rate; });
  of_strategy(
      "round-deadline", "SECONDS", "end a round without clients that are late; 0: wait for all (fedavg)", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.round_deadline; });
  of_strategy(
      "secure-aggregation", "off|on|unmasked",
      "on: the first rank is a server that learns the sum of a round's updates and no update; unmasked: the "
      "same sum without protection, to compare with (fedavg)",
      "", [](auto& c) -> auto& { return c.strategy_options.federated.secure.masks; });
  of_strategy(
      "secure-threshold", "N",
      "fewest clients in a secure sum, above half of those of a round, which fails with fewer",
      "two thirds of the clients of a round",
      [](auto& c) -> auto& { return c.strategy_options.federated.secure.threshold; });
  of_strategy(
      "secure-ring", "32|64", "bits of the whole numbers in which a secure sum is made", "",
      [](auto& c) -> auto& { return c.strategy_options.federated.secure.ring; });
  of_strategy(
      "secure-bits", "N", "bits of a value in a secure sum", "as many as the ring has room for, at most 24",
      [](auto& c) -> auto& { return c.strategy_options.federated.secure.bits; });
  of_strategy(
      "secure-clip", "R",
      "largest value of an update in a secure sum; larger ones are cut. With --secure-noise its largest norm",
      "", [](auto& c) -> auto& { return c.strategy_options.federated.secure.clip; });
  of_strategy(
      "secure-noise", "R",
      "--secure-noise R --secure-clip C is --dp-unit client --dp-noise R --dp-clip C: noise that the clients "
      "add to a secure sum; 0: none",
      "", [](auto& c) -> auto& { return c.strategy_options.federated.secure.noise; });
  add(
      "adaptive-batch", "",
      "after each epoch, let a step take as many batches as the noise of its gradient asks for", "",
      [](auto& c) -> auto& { return c.batch.adaptive; });
  add(
      "eval-batch", "N", "samples that a rank evaluates at once; 0: as memory allows", "",
      [](auto& c) -> auto& { return c.batch.evaluation; });
  add(
      "pipeline", "1f1b|eager-1f1b|gpipe|interleaved|layerwise",
      "schedule of a pipeline; eager-1f1b is the fastest where its activations have room", "",
      [](auto& c) -> auto& { return c.pipeline.schedule; });
  add(
      "virtual-stages", "V", "stages per rank, with --pipeline interleaved", "",
      [](auto& c) -> auto& { return c.pipeline.virtual_stages; });
  // Not written where it means nothing: a file that is fed back must not be refused.
  all.back().toml = [](const RunConfig& c) {
    return c.pipeline.schedule == "interleaved" ? write_toml(c.pipeline.virtual_stages) : std::string();
  };
  add(
      "balance", "none|dynamic|data",
      "dynamic: stages with equal measured time, not with equal work as counted, and again after an epoch; "
      "data: micro-batches dealt by the ranks' measured speed",
      "", [](auto& c) -> auto& { return c.pipeline.balance; });
  add(
      "recompute", "none|full|auto",
      "recompute activations in backward; auto: as far as --memory-limit needs it", "",
      [](auto& c) -> auto& { return c.pipeline.recompute; });
  add(
      "memory-limit", "SIZE",
      "most memory for the tensors of a rank, such as 2GiB; chooses strategy, recomputation and "
      "micro-batches where they are not given",
      "", [](auto& c) -> auto& { return c.pipeline.memory_limit; });

  group = "How it is trained";
  add(
      "epochs", "N", "passes over the training data", by_model, [](auto& c) -> auto& { return c.epochs; });
  not_of_clients();
  add(
      "limit-steps", "N", "end after N steps in total; 0: no limit", "",
      [](auto& c) -> auto& { return c.limit_steps; });
  add(
      "exit-after", "TIME",
      "stop with a checkpoint after this time: a number of s, min, h or d, such as 55min", "",
      [](auto& c) -> auto& { return c.exit_after; });
  add(
      "optimizer", "sgd|adam|adamw", "the rule of updates", by_model,
      [](auto& c) -> auto& { return c.update.rule.name; });
  add(
      "learning-rate", "R", "highest learning rate of the schedule", by_model,
      [](auto& c) -> auto& { return c.update.schedule.learning_rate; });
  add(
      "momentum", "R", "momentum of sgd", by_model, [](auto& c) -> auto& { return c.update.rule.momentum; });
  add(
      "nesterov", "", "Nesterov momentum for sgd", "",
      [](auto& c) -> auto& { return c.update.rule.nesterov; });
  const auto of_adam = [&](const char* name, const char* help, const std::string& fallback, auto access) {
    add(name, "R", help, fallback, access);
    // Not written where it means nothing: a file that is fed back must not be refused.
    all.back().toml = [access](const RunConfig& c) {
      return c.update.rule.adaptive() ? write_toml(access(c)) : std::string();
    };
  };
  of_adam(
      "beta1", "decay rate of the first moment of adam and adamw", by_model,
      [](auto& c) -> auto& { return c.update.rule.beta1; });
  of_adam(
      "beta2", "decay rate of the second moment of adam and adamw", by_model,
      [](auto& c) -> auto& { return c.update.rule.beta2; });
  of_adam(
      "epsilon",
      "constant of adam and adamw beside the root of the second moment; of privacy it is --target-epsilon",
      "", [](auto& c) -> auto& { return c.update.rule.eps; });
  add(
      "optimizer-state-bits", "32|8",
      "bits of a value of the optimizer's state; 8: of parameters of 4096 values or more, 256 of which share "
      "a "
      "scale (ddp, zero1, zero2, zero3)",
      "", [](auto& c) -> auto& { return c.update.rule.state_bits; });
  // Not written unless it is wanted: a file of a usual run serves with any strategy.
  all.back().toml = [](const RunConfig& c) {
    return c.update.rule.codes_state() ? write_toml(c.update.rule.state_bits) : std::string();
  };
  add(
      "offload", "none|optimizer",
      "keep the optimizer's state in the host's memory, and bring it to the device for each update (ddp)", "",
      [](auto& c) -> auto& { return c.update.rule.offload; });
  all.back().toml = [](const RunConfig& c) {
    return c.update.rule.state_on_host() ? write_toml(c.update.rule.offload) : std::string();
  };
  add(
      "weight-decay", "R", "weight decay", by_model,
      [](auto& c) -> auto& { return c.update.rule.weight_decay; });
  add(
      "decay", "all|matrices", "parameters with weight decay; matrices: no biases and norms", by_model,
      [](auto& c) -> auto& { return c.update.decay; });
  add(
      "schedule", "constant|step|cosine|one_cycle|linear|wsd", "learning rate over time", by_model,
      [](auto& c) -> auto& { return c.update.schedule.name; });
  add(
      "warmup-steps", "N", "first steps, in which the learning rate rises; one_cycle has its own", by_model,
      [](auto& c) -> auto& { return c.update.schedule.warmup_steps; });
  // Not written unless it was given: the recipe's is shortened where the run is shorter, a given one is not.
  all.back().toml = [](const RunConfig& c) {
    return c.given.contains("warmup-steps") ? write_toml(c.update.schedule.warmup_steps) : std::string();
  };
  add(
      "min-learning-rate", "R", "learning rate to which the schedule falls", "",
      [](auto& c) -> auto& { return c.update.schedule.least_rate; });
  add(
      "grad-clip", "R", "largest norm of the gradient; 0: no clipping", by_model,
      [](auto& c) -> auto& { return c.update.grad_clip; });
  add(
      "batch-norm", "local", "BatchNorm's statistics; local: of each micro-batch", "",
      [](auto& c) -> auto& { return c.batch_norm; });
  add(
      "precision", "fp32|fp64|bf16|fp16", "numbers; bf16, fp16: mixed precision with fp32 weights", "",
      [](auto& c) -> auto& { return c.precision; });
  add(
      "tf32", "", "GPUs multiply and convolve fp32 with 10 bits of each factor's 23: faster, and not exact",
      "", [](auto& c) -> auto& { return c.tf32; });
  // Not written unless it is wanted: the file of a run on CPUs says nothing of GPUs.
  all.back().toml = [](const RunConfig& c) { return c.tf32 ? write_toml(c.tf32) : std::string(); };
  add(
      "seed", "N", "seed of all random numbers", "", [](auto& c) -> auto& { return c.seed; });
  add(
      "reproducible", "",
      "same bits on any number of ranks along data and pipe; sets 8 micro-batches, 1 thread", "",
      [](auto& c) -> auto& { return c.reproducible; });

  group = "How it is validated";
  add(
      "validate-every", "1epoch|Nsteps", "validate after each epoch, and with Nsteps also every N steps", "",
      [](auto& c) -> auto& { return c.validation.every; });
  add(
      "best-by", "loss|accuracy", "validation figure that decides which model is the best", "",
      [](auto& c) -> auto& { return c.validation.best_by; });
  add(
      "early-stopping", "N", "end after N validations in a row without a better model; 0: never", "",
      [](auto& c) -> auto& { return c.validation.early_stopping; });

  group = "Where it runs";
  add(
      "device", "auto|cpu|cuda", "device of the ranks; auto: GPUs if every rank finds one", "",
      [](auto& c) -> auto& { return c.device; });
  add(
      "device-graphs", "auto|off", "on GPUs, replay steps as CUDA graphs where possible", "",
      [](auto& c) -> auto& { return c.device_graphs; });
  add(
      "threads", "N", "compute threads per rank; 0: from the affinity mask", "",
      [](auto& c) -> auto& { return c.threads; });
  add(
      "kernels", "auto|own|libtorch|fused",
      "kernels of the layers: dtrain's where they are faster, LibTorch's alone, or dtrain's with those that "
      "join operations for GPUs (in bf16 on an H200 gpt2 trains 2.4 x as fast with them, resnet18 1.5 x); "
      "auto: these on GPUs in half precision without --reproducible, else own",
      "", [](auto& c) -> auto& { return c.kernels; });
  add(
      "comm-backend", "auto|mpi|nccl",
      "transport between GPUs; mpi: through the CPU's memory, to tell a fault of NCCL from another", "",
      [](auto& c) -> auto& { return c.comm.backend; });
  add(
      "nccl-shared", "",
      "set NCCL up once for all groups: communicators split from one, buffers registered with it (not yet "
      "seen with several GPUs)",
      "", [](auto& c) -> auto& { return c.comm.common_set_up; });
  all.back().toml = [](const RunConfig& c) {  // likewise
    return c.comm.common_set_up ? write_toml(c.comm.common_set_up) : std::string();
  };
  add(
      "all-reduce", "auto|mpi|ring|tree|hierarchical",
      "algorithm of sums over ranks; auto: what is the fastest when measured once; others to compare", "",
      [](auto& c) -> auto& { return c.comm.all_reduce; });
  add(
      "bucket-mb", "X", "MiB of gradients per bucket; 0: chosen automatically; less saves memory with zero2",
      "", [](auto& c) -> auto& { return c.bucket_mb; });
  add(
      "watchdog", "S", "most seconds for a collective; inf: no limit", "",
      [](auto& c) -> auto& { return c.comm.timeout_s; });
  all.back().set = [](RunConfig& c, const std::string& text) {
    read_value(text, "watchdog", c.comm.timeout_s);
    if (c.comm.timeout_s == std::numeric_limits<double>::infinity()) c.comm.timeout_s = train::kNoLimit_s;
  };
  all.back().toml = [](const RunConfig& c) {
    return c.comm.timeout_s == train::kNoLimit_s ? std::string("inf") : write_toml(c.comm.timeout_s);
  };
  add(
      "on-failure", "auto|recover|abort",
      "after a rank is lost: continue without it (auto: where MPI can), or end", "",
      [](auto& c) -> auto& { return c.on_failure; });
  add(
      "spares", "N", "ranks that wait to replace lost ones", "", [](auto& c) -> auto& { return c.spares; });
  add(
      "replicate", "off|K",
      "steps between copies of each rank's part in another rank's memory: for stages and slices, which one "
      "rank alone holds",
      "", [](auto& c) -> auto& { return c.replicate; });
  add(
      "verify-every", "N",
      "compare the ranks' weights every N steps, and all calls between nodes, to find a faulty memory or "
      "GPU; 0: never",
      "", [](auto& c) -> auto& { return c.verify_every; });
  add(
      "inject", "FAULT", "inject a fault, such as kill:rank=1,phase=backward,step=7", "none",
      [](auto& c) -> auto& { return c.inject; });
  add(
      "emulate", "FILE", "slow ranks, nodes and links that are not there, as delays or by a virtual clock",
      "none", [](auto& c) -> auto& { return c.emulate; });

  group = "What it leaves behind";
  add(
      "output", "FOLDER", "parent folder of the run's folder", "",
      [](auto& c) -> auto& { return c.output.folder; });
  add(
      "name", "NAME", "name of the run and its folder", "MODEL-DATASET-JOB or -TIME",
      [](auto& c) -> auto& { return c.output.name; });
  add(
      "overwrite", "", "replace a run of that name", "", [](auto& c) -> auto& { return c.output.overwrite; });
  add(
      "resume", "auto|none|PATH",
      "resume the run of that name, or start from a checkpoint's folder or a run's newest", "",
      [](auto& c) -> auto& { return c.output.resume; });
  add(
      "optimizer-state", "exact|keep|reset",
      "with --resume PATH: exact refuses other settings; keep allows another rate, schedule or batch; reset "
      "also forgets the optimizer's state",
      "", [](auto& c) -> auto& { return c.output.optimizer_state; });
  add(
      "checkpoint-every", "end|INTERVAL",
      "interval, such as 500steps, 1epoch, 10min or 2h; end: only at the end",
      "1epoch, where it takes at most 2 % of the time",
      [](auto& c) -> auto& { return c.output.checkpoint_every; });
  // Not written unless it was given: then it is kept to, whatever time it takes.
  all.back().toml = [](const RunConfig& c) {
    return c.given.contains("checkpoint-every") ? write_toml(c.output.checkpoint_every) : std::string();
  };
  add(
      "keep", "N", "checkpoints to keep besides the best", "",
      [](auto& c) -> auto& { return c.output.keep; });
  all.push_back(record_steps(group));
  add(
      "trace", "", "write trace.json, for Chrome's tracing or Perfetto", "",
      [](auto& c) -> auto& { return c.output.trace; });
  add(
      "trace-steps", "all|FIRST-LAST", "write trace.json of these steps alone, such as 100-110", "",
      [](auto& c) -> auto& { return c.output.trace_steps; });
  add(
      "tensorboard", "", "write event files for TensorBoard", "",
      [](auto& c) -> auto& { return c.output.tensorboard; });
  add(
      "quiet", "", "print only errors", "", [](auto& c) -> auto& { return c.output.quiet; });
  add(
      "dry-run", "", "print placement, memory and the first batch's shapes, then exit", "",
      [](auto& c) -> auto& { return c.dry_run; });
  add(
      "all-ranks", "", "with --dry-run: list all ranks of a large job", "",
      [](auto& c) -> auto& { return c.all_ranks; });
  add(
      "cluster", "NODESxRANKS", "with --dry-run: plan for this many nodes and ranks per node", "",
      [](auto& c) -> auto& { return c.cluster; });
  return all;
}

}  // namespace

const std::vector<Option>& run_options() {
  static const std::vector<Option> kOptions = declare();
  return kOptions;
}

}  // namespace dtrain::app
