#include "train/config/strategy_setting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "comm/faults/injected_fault.hpp"
#include "core/error.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/step/pieces.hpp"
#include "parallel/strategy/difference_codec.hpp"
#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/sync_period.hpp"
#include "privacy/accountant.hpp"
#include "privacy/noise.hpp"
#include "train/config/federated_setting.hpp"
#include "train/config/precision.hpp"
#include "train/config/secure_setting.hpp"

namespace dtrain::train {
namespace {

/// Throws Error where the user gave an option that belongs to other strategies.
void check_options_belong(const RunConfig& config) {
  const auto& chosen = parallel::find_strategy(config.strategy);
  for (const auto& entry : parallel::strategies()) {
    for (const auto& option : entry.options) {
      if (!config.given.contains(option) || std::ranges::count(chosen.options, option) > 0) continue;
      std::vector<std::string> others;
      for (const auto& other : parallel::strategies()) {
        if (std::ranges::count(other.options, option) > 0) others.push_back(other.name);
      }
      throw usage_error(fmt::format("means nothing to the strategy {}", config.strategy), "--" + option,
                        fmt::format("leave it out, or use --strategy {}", fmt::join(others, " or ")));
    }
  }
}

constexpr int kMostFragments = 1000;

void check_fragments(const parallel::StrategyOptions& options, const parallel::SyncPeriod& period) {
  require_option(options.fragments >= 1 && options.fragments <= kMostFragments,
                 fmt::format("{} is not a number of parts", options.fragments), "--fragments",
                 fmt::format("use 1 to {}", kMostFragments));
  require_option(
      period.adapts() || options.fragments <= period.steps(),
      fmt::format("a round has {} steps for the exchanges of {} parts", period.steps(), options.fragments),
      "--fragments", "use at most as many as --sync-period has steps");
}

constexpr int kMostOverlap = 1'000'000;  // steps, as of a round

void check_overlap(const parallel::StrategyOptions& options, const parallel::SyncPeriod& period) {
  const auto steps = options.overlap_steps;
  require_option(steps >= 0 && steps <= kMostOverlap, fmt::format("{} is not a number of steps", steps),
                 "--overlap-steps", "use 0 (the copies wait) or more");
  require_option(
      period.adapts() || steps < period.steps(),
      fmt::format("a part is sent again after {} steps, and has not arrived before", period.steps()),
      "--overlap-steps", "use fewer than --sync-period has");
}

/// Whether each rank has the sums of its shard's gradients only.
bool sums_are_shards(const RunConfig& config) {
  return parallel::find_strategy(config.strategy).shares.gradients;
}

void check_compression_after(const RunConfig& config, const parallel::CompressionChoice& choice) {
  const int after = config.strategy_options.compression_after;
  require_option(after >= 0, fmt::format("{} is no number of steps", after), "--compression-after",
                 "use 0 (compress from the first step on) or more");
  require_option(after == 0 || choice, "nothing is compressed after them", "--compression-after",
                 "add --compression, such as powersgd=2, or leave it out");
  require_option(after == 0 || choice.kind != parallel::CompressionChoice::Kind::automatic,
                 "auto begins when it has measured enough steps in all bits", "--compression-after",
                 "leave it out, or use another --compression");
}

/// Throws Error where the gradients cannot be compressed, whatever the machine is.
void check_compression(const RunConfig& config) {
  const auto& wanted = config.strategy_options.compression;
  const auto choice = parallel::CompressionChoice::parse(wanted);
  check_compression_after(config, choice);
  if (!choice) return;
  const auto refuse_if = [&](bool bad, std::string_view problem, std::string_view advice) {
    require_option(!bad, problem, "--compression " + wanted, advice);
  };
  refuse_if(config.mesh_shape.data == 1 && config.started_ranks == 1,
            "there is nothing to compress: the data axis has one rank",
            "start ranks on several nodes, or leave it out");
  refuse_if(config.reproducible,
            "what a compressed sum leaves out depends on which ranks share a node, and --reproducible "
            "promises the same bits on any ranks",
            "leave one of them out");
  refuse_if(config.precision == "fp64", "gradients in fp64 travel in all their bits",
            "use --precision fp32, or leave it out");
  refuse_if(config.computes_on_device(), "the CPU compresses, and gradients stay on their device",
            "use --device cpu, or leave it out");
  refuse_if(config.batch.adaptive, "its rounding would count as noise of the gradient, which sets the batch",
            "leave --adaptive-batch or --compression out");
  refuse_if(choice.keeps_error() && config.precision == "fp16",
            "in fp16 steps are left out, and what their messages took from its error would be lost",
            "use --precision bf16 or fp32, or another compression");
  refuse_if(choice.keeps_error() && config.mesh_shape.tensor > 1, "a node's error of a slice cannot be saved",
            "use a mesh of data and pipe, or another compression");
  using Kind = parallel::CompressionChoice::Kind;
  const bool rounds = choice.kind == Kind::fp16 || choice.kind == Kind::bf16 || choice.kind == Kind::int8;
  refuse_if(sums_are_shards(config) && config.strategy_options.shard_within != "node",
            "gradients go to the ranks of their shards as they come, in all their bits",
            "add --shard-within node, whose sums cross to other nodes once in a step, or use ddp or zero1");
  refuse_if(sums_are_shards(config) && !rounds, "a rank has a shard of each gradient only",
            "use fp16, bf16 or int8, or ddp or zero1");
  refuse_if(config.comm.all_reduce != comm::Algorithm::automatic &&
                config.comm.all_reduce != comm::Algorithm::hierarchical,
            "compressed sums go by node", "leave --all-reduce out, or use --all-reduce hierarchical");
}

constexpr std::array<const char*, 8> kPrivacyOptions = {"dp-noise",   "target-epsilon",  "dp-delta",
                                                        "dp-sampler", "dp-accountant",   "noise-source",
                                                        "dp-unit",    "dp-adaptive-clip"};
/// Which --secure-noise has as well: the others it stands for.
constexpr std::array<const char*, 3> kOptionsOfAccount = {"target-epsilon", "dp-delta", "dp-accountant"};

/// What federated runs have alone.
void check_privacy_of_clients(const parallel::StrategyOptions& options, bool adapts) {
  const auto& unit = options.dp_unit;
  require_option(unit == "record" || unit == "client", fmt::format("\"{}\" is not a value it takes", unit),
                 "--dp-unit", "use one of record, client");
  const double quantile = options.dp_adaptive_clip;
  require_option(quantile >= 0 && quantile < 1, fmt::format("{} is no quantile", quantile),
                 "--dp-adaptive-clip",
                 "use a number between 0 and 1, such as 0.5, or 0 for a clip that stays");
  require_option(!adapts || quantile == 0 || unit == "client", "adapts the clip of updates, not of gradients",
                 "--dp-adaptive-clip", "add --dp-unit client, or leave it out");
}

/// Throws Error where steps cannot be private, whatever the model and the dataset are.
void check_privacy(const RunConfig& config) {
  const auto& options = config.strategy_options;
  require_option(std::isfinite(options.dp_clip) && options.dp_clip >= 0,
                 fmt::format("{} is no norm to clip to", options.dp_clip), "--dp-clip",
                 "use a positive number, such as 1, or 0 for no differential privacy");
  if (options.dp_clip == 0) {
    for (const std::string option : kPrivacyOptions) {
      const bool belongs = is_private(config) && std::ranges::count(kOptionsOfAccount, option) > 0;
      require_option(belongs || !config.given.contains(option),
                     "no gradient is clipped, so that nothing is private", "--" + option,
                     "add --dp-clip, such as --dp-clip 1");
    }
  }
  if (!is_private(config)) return;
  privacy::require_delta(options.dp_delta);
  privacy::parse_sampling(options.dp_sampler);
  privacy::parse_accounting(options.dp_accountant);
  privacy::parse_noise_source(options.noise_source);
  require_option(!config.fabric.computes_times(), "a virtual clock knows no times of clipped gradients",
                 "--dp-clip", "use clock = \"real\", or leave --emulate out");
  const bool has_noise = config.given.contains("dp-noise");
  require_option(!has_noise || (std::isfinite(options.dp_noise) && options.dp_noise >= 0),
                 fmt::format("{} is no multiple of the clip norm", options.dp_noise), "--dp-noise",
                 "use a positive number, such as 1.1");
  require_option(!config.given.contains("target-epsilon") ||
                     (std::isfinite(options.target_epsilon) && options.target_epsilon > 0),
                 fmt::format("{} is no epsilon to reach", options.target_epsilon), "--target-epsilon",
                 "use a positive number, such as 3");
  constexpr double kLargestOfAdam = 0.01;
  require_option(!config.given.contains("epsilon") || config.update.rule.eps < kLargestOfAdam,
                 "is Adam's constant, for which it is large", "--epsilon",
                 "use --target-epsilon for what may be released, or a constant below 0.01");
  check_privacy_of_clients(options, config.given.contains("dp-adaptive-clip"));
  require_option(has_noise || options.dp_clip == 0 || options.target_epsilon > 0,
                 "how much noise there is to be is not known", "--dp-clip",
                 "add --target-epsilon, such as 3, or --dp-noise, such as 1.1");
}

/// Throws Error where no node can have the whole state, whatever the machine is.
void check_shard_within(const RunConfig& config) {
  const auto& within = config.strategy_options.shard_within;
  require_option(within == "all" || within == "node", fmt::format("\"{}\" is not a value it takes", within),
                 "--shard-within", "use one of all, node");
  if (within == "all") return;
  require_option(config.strategy_options.compression == "none" || sums_are_shards(config),
                 "the sums of a node's ranks cross to other nodes in all their bits", "--shard-within node",
                 "leave --compression out, or use zero2 or zero3");
  require_option(config.mesh_shape.data > 1 || config.started_ranks != 1,
                 "there is nothing to share out: the data axis has one rank", "--shard-within node",
                 "start several ranks on each node, or leave it out");
}

/// Whether the first rank adds up what the others' clients hand in, and does nothing else.
bool has_secure_server(const RunConfig& config) { return uses_strategy_option(config, "secure-aggregation"); }

/// Throws Error where the optimizer's state cannot be in 8 bits, whatever the machine is.
void check_state_bits(const RunConfig& config) {
  const auto& rule = config.update.rule;
  if (!rule.codes_state()) return;
  const auto refuse_if = [](bool bad, std::string_view problem, std::string_view advice) {
    require_option(!bad, problem, "--optimizer-state-bits 8", advice);
  };
  refuse_if(rule.state_count() == 0, "sgd without momentum has no state",
            "leave it out, or add --momentum 0.9");
  refuse_if(
      config.reproducible,
      "256 values that share a scale end where a rank's share ends, and --reproducible promises the same "
      "bits on any ranks",
      "leave one of them out");
  refuse_if(config.precision == "fp64", "it rounds coarser than fp64 is for",
            "use --precision fp32, bf16 or fp16, or leave it out");
  refuse_if(config.computes_on_device(), "the CPU keeps the optimizer's state in 8 bits",
            "use --device cpu, or leave it out");
  refuse_if(config.strategy_options.dp_clip > 0, "private steps keep their state in full",
            "leave --dp-clip or --optimizer-state-bits out");
}

constexpr const char* kNoDeviceToRelieve =
    "the CPU computes, and its memory has the optimizer's state anyway";

/// Throws Error where the optimizer's state cannot leave a device, whatever the machine is.
void check_offload(const RunConfig& config) {
  const auto& rule = config.update.rule;
  if (!rule.state_on_host()) return;
  const auto refuse_if = [](bool bad, std::string_view problem, std::string_view advice) {
    require_option(!bad, problem, "--offload optimizer", advice);
  };
  refuse_if(config.device == "cpu", "the CPU computes, and its memory has the optimizer's state anyway",
            "leave it out, or use --device cuda; to save memory of CPU ranks use --strategy zero1");
  refuse_if(rule.state_count() == 0, "sgd without momentum has no state",
            "leave it out, or add --momentum 0.9");
  refuse_if(rule.codes_state(), "state in 8 bits is the CPU's", "leave one of them out");
  refuse_if(config.strategy_options.dp_clip > 0, "private steps keep their state with the parameters",
            "leave --dp-clip or --offload out");
}

constexpr int kMostServers = 1 << 20;  // more than any job has ranks
constexpr int kMostStaleness = 1000;   // steps; what is kept of staleness grows with it

bool injects_faults_of_sums(const RunConfig& config) {
  if (config.inject.empty()) return false;
  const auto ranks = std::max(config.started_ranks, config.mesh_shape.size());
  return std::ranges::any_of(comm::parse_faults(config.inject, ranks), &comm::InjectedFault::is_of_sum);
}

bool says_how_to_sum(const RunConfig& config) {
  return config.bucket_bytes() > 0 || config.comm.all_reduce != comm::Algorithm::automatic ||
         injects_faults_of_sums(config);
}

bool has_outer(const RunConfig& config) { return config.strategy_options.outer_optimizer != "none"; }

}  // namespace

void validate_strategy_options(const RunConfig& config) {
  check_options_belong(config);
  check_compression(config);
  check_privacy(config);
  check_shard_within(config);
  check_state_bits(config);
  check_offload(config);
  const auto& options = config.strategy_options;
  const parallel::SyncPeriod period(options.sync_period);
  require_option(options.sync_optimizer == "keep" || options.sync_optimizer == "average" ||
                     options.sync_optimizer == "reset",
                 fmt::format("\"{}\" is not a value it takes", options.sync_optimizer), "--sync-optimizer",
                 "use one of keep, average, reset");
  require_option(options.local_after >= 0, fmt::format("{} is too small", options.local_after),
                 "--local-after", "use 0 or more");
  require_option(options.outer_optimizer == "none" || options.outer_optimizer == "nesterov",
                 fmt::format("\"{}\" is not a value it takes", options.outer_optimizer), "--outer-optimizer",
                 "use one of none, nesterov");
  for (const std::string option : {"outer-learning-rate", "outer-momentum"}) {
    require_option(has_outer(config) || !config.given.contains(option), "there is no outer update",
                   "--" + option, "leave it out, or use --outer-optimizer nesterov");
  }
  require_option(std::isfinite(options.outer_learning_rate) && options.outer_learning_rate > 0,
                 fmt::format("{} is not a rate to work with", options.outer_learning_rate),
                 "--outer-learning-rate", "use a positive number, such as 0.7");
  require_option(options.outer_momentum >= 0 && options.outer_momentum < 1,
                 fmt::format("momentum {} is outside [0, 1)", options.outer_momentum), "--outer-momentum",
                 "use 0.9");
  check_fragments(options, period);
  check_overlap(options, period);
  parallel::parse_exchange_type(options.exchange_type);
  require_option(options.easgd_mode == "rounds" || options.easgd_mode == "asynchronous",
                 fmt::format("\"{}\" is not a value it takes", options.easgd_mode), "--easgd-mode",
                 "use one of rounds, asynchronous");
  require_option(!config.given.contains("servers") || uses_strategy_option(config, "servers"),
                 "copies that meet in rounds have no servers", "--servers",
                 "leave it out, or use --easgd-mode asynchronous");
  require_option(options.servers >= 0, fmt::format("{} ranks cannot keep the parameters", options.servers),
                 "--servers", "use 1 or more, or 0 for all ranks beside their computing");
  require_option(!has_secure_server(config) || config.mesh_shape.data >= fewest_ranks(config),
                 "the server is a rank without clients, and there is no other rank", "--secure-aggregation",
                 "start at least 2 ranks");
  // Where copies are cut, the strategy itself is refused.
  require_option(config.mesh_shape.data >= fewest_ranks(config) || config.mesh_shape.model_ranks() > 1,
                 fmt::format("{} of {} data ranks would serve, and none would compute", options.servers,
                             config.mesh_shape.data),
                 "--servers",
                 fmt::format("start at least {} ranks, or use --servers 0", fewest_ranks(config)));
  require_option(options.staleness >= 0, fmt::format("{} is too small", options.staleness), "--staleness",
                 "use 0 (lock-step) or more");
  require_option(options.staleness <= kMostStaleness, fmt::format("{} is too large", options.staleness),
                 "--staleness", fmt::format("use at most {}", kMostStaleness));
  require_option(options.staleness_rate == "constant" || options.staleness_rate == "divided",
                 fmt::format("\"{}\" is not a value it takes", options.staleness_rate), "--staleness-rate",
                 "use one of constant, divided");
  require_option(!config.given.contains("elasticity") || (options.elasticity > 0 && options.elasticity < 1),
                 fmt::format("{} is outside (0, 1)", options.elasticity), "--elasticity",
                 "use 0.9 over the number of copies, its default");
}

void require_links_to_compress(const RunConfig& config, Job& job) {
  const auto& wanted = config.strategy_options.compression;
  if (!parallel::CompressionChoice::parse(wanted)) return;
  require_option(job.mesh().crosses_nodes(job.cluster(), topology::Axis::data),
                 "there is nothing to compress: the ranks of each data group are on one node, and gradients "
                 "are compressed between nodes",
                 "--compression " + wanted, "start ranks on several nodes, or leave it out");
  require_option(job.device().is_cpu(), "the CPU compresses, and gradients stay on their device",
                 "--compression " + wanted, "use --device cpu, or leave it out");
}

void require_ranks_to_shard_within(const RunConfig& config, Job& job) {
  if (config.strategy_options.shard_within != "node") return;
  const auto here = job.mesh().ranks_on_a_node(job.cluster(), topology::Axis::data);
  require_option(here > 1,
                 here == 1 ? "each node has one rank of each data group, and nothing to share out within it"
                           : "the nodes do not have as many ranks of each data group",
                 "--shard-within node", "start as many ranks on each node, two or more, or leave it out");
}

int workers(const RunConfig& config) {
  return std::max(1, config.mesh_shape.data - fewest_ranks(config) + 1);
}

int fewest_ranks(const RunConfig& config) {
  if (has_secure_server(config)) return 2;
  return has_servers(config) ? std::clamp(config.strategy_options.servers, 0, kMostServers) + 1 : 1;
}

bool has_servers(const RunConfig& config) {
  const bool in_lock_step =
      uses_strategy_option(config, "staleness") && config.strategy_options.staleness == 0;
  return uses_strategy_option(config, "servers") && !in_lock_step;
}

bool serves_in_threads(const RunConfig& config) {
  return has_servers(config) && config.strategy_options.servers == 0;
}

bool uses_strategy_option(const RunConfig& config, const std::string& name) {
  const auto& entries = parallel::strategies();
  const auto chosen = std::ranges::find(entries, config.strategy, &parallel::StrategyEntry::name);
  if (chosen == entries.end() || std::ranges::count(chosen->options, name) == 0) return false;
  if (name == "servers" && std::ranges::count(chosen->options, "easgd-mode") > 0)
    return config.strategy_options.easgd_mode == "asynchronous";
  const auto& options = config.strategy_options;
  if (name == "compression-after") return options.compression_after > 0;
  if (name == "dp-adaptive-clip") return options.dp_clip > 0 && options.dp_adaptive_clip > 0;
  if (name == "dp-noise") return options.dp_clip > 0 && options.dp_noise >= 0;
  if (name == "target-epsilon") return is_private(config) && options.target_epsilon > 0;
  if (std::ranges::count(kOptionsOfAccount, name) > 0) return is_private(config);
  if (name == "dp-clip" || std::ranges::count(kPrivacyOptions, name) > 0) return options.dp_clip > 0;
  const auto& federated = config.strategy_options.federated;
  if (name.starts_with("secure-") && !federated.secure.on()) return false;
  if (name == "secure-threshold") return federated.secure.threshold > 0;
  if (name == "secure-bits") return federated.secure.bits > 0;
  if (name == "secure-clip") return options.dp_clip == 0 || options.dp_unit != "client";
  if (name == "server-momentum") return federated.server_optimizer != "none";
  if (name == "server-rate") return federated.server_rate > 0;
  if (name == "partition") return !federated.partition.empty();
  if (name == "local-batch") return !federated.local_batch.empty();
  if (name == "clients") return federated.clients > 0;
  if (name == "clients-per-round") return federated.clients_per_round > 0;
  if (name == "outer-learning-rate" || name == "outer-momentum") return has_outer(config);
  return name != "elasticity" || config.given.contains(name);
}

parallel::Setting strategy_setting(const RunConfig& config) {
  return {.mesh = config.mesh_shape,
          .reproducible = config.reproducible,
          .half = half_type(config),
          .fused_kernels = kernels_of(config) == models::Kernels::fused,
          .own_kernels = kernels_of(config) != models::Kernels::libtorch,
          .on_device = config.computes_on_device(),
          .no_device_graphs = config.device_graphs == "off" ? "--device-graphs off" : "",
          .injects_faults = !config.inject.empty(),
          .says_how_to_sum = says_how_to_sum(config),
          .recovers = config.on_failure != "abort",
          .adapts_batch = config.batch.adaptive,
          .owns_by_speed = balances_data(config),
          .optimizer = config.update.rule,
          .options = with_noise_in_one_way(config.strategy_options),
          .global_batch = config.batch.global_batch,
          .micro_batches = config.batch.micro_batches};
}

parallel::Setting strategy_setting(const RunConfig& config, Job& job, const Workload& workload,
                                   const federated::ClientRounds* rounds, bool recovers) {
  auto setting = strategy_setting(config);
  setting.on_device = !workload.device.is_cpu();
  if (setting.no_device_graphs.empty() && job.rank_device().graphs == nullptr)
    setting.no_device_graphs = job.rank_device().no_graphs;
  setting.samples_alike = workload.sample_shapes == parallel::StageMessages::SampleShapes::alike;
  setting.class_weights = workload.training_loss.class_weights.defined();
  setting.recovers = recovers;
  setting.records = workload.dataset.info().samples("train");
  const parallel::Pieces epoch{.samples = setting.records,
                               .global_batch = samples_of_step(config, setting.records)};
  setting.total_steps = config.total_steps(epoch.steps());
  const auto& shape = workload.dataset.info().shape;
  setting.sample_extent = shape.empty() ? 0 : shape.front();
  setting.model = workload.model.get();
  const bool asks_for_clients = setting.options.dp_clip > 0 || setting.options.federated.secure.on();
  if (rounds == nullptr || !asks_for_clients) return setting;
  for (int client = 0; client < rounds->partition().clients(); ++client)
    setting.clients.push_back(rounds->facts_of(client));
  setting.clients_of = [rounds](std::int64_t round) { return rounds->reporting(round); };
  return setting;
}

}  // namespace dtrain::train
