#include "train/config/federated_setting.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "federated/partition_rule.hpp"
#include "train/config/limits.hpp"
#include "train/config/secure_setting.hpp"
#include "train/config/strategy_setting.hpp"

namespace dtrain::train {
namespace {

constexpr int kMostClients = 1 << 20;
constexpr int kMostRounds = 1'000'000;
constexpr int kMostLocalEpochs = 10'000;

void require_between(std::int64_t value, std::int64_t least, std::int64_t most, std::string_view option) {
  require_option(value >= least && value <= most,
                 fmt::format("{} is too {}", value, value < least ? "small" : "large"), option,
                 fmt::format("use {} to {}", least, most));
}

/// Where clients train alone nothing leaves them, so that nothing can be chosen of it.
void require_nothing_shared(const RunConfig& config) {
  const auto& options = config.strategy_options.federated;
  const auto refuse_if = [](bool bad, std::string_view option, std::string_view problem) {
    require_option(!bad, problem, option, "leave it out, or use another --federated-rule");
  };
  refuse_if(config.given.contains("clients-per-round"), "--clients-per-round",
            "clients that train alone all train in each round");
  refuse_if(options.drop_rate > 0, "--drop-rate", "clients that train alone hand nothing in");
  refuse_if(options.round_deadline > 0, "--round-deadline", "clients that train alone hand nothing in");
  refuse_if(options.proximal_mu > 0, "--proximal-mu",
            "clients that train alone have no global weights to be held to");
  refuse_if(options.server_optimizer != "none" || options.server_rate > 0, "--server-optimizer",
            "clients that train alone have no server");
}

}  // namespace

bool is_federated(const RunConfig& config) { return uses_strategy_option(config, "rounds"); }

bool clients_keep_states(const RunConfig& config) {
  const auto& rule = config.strategy_options.federated.rule;
  return is_federated(config) && (rule == "scaffold" || rule == "local");
}

std::int64_t samples_of_step(const RunConfig& config, std::int64_t samples) {
  return is_federated(config) ? samples : config.batch.global_batch;
}

std::int64_t local_batch(const RunConfig& config) {
  const auto& text = config.strategy_options.federated.local_batch;
  if (text == "all") return 0;
  if (text.empty()) return config.batch.global_batch;
  const auto samples = parse_number<std::int64_t>(text);
  require_option(samples && *samples >= 1 && *samples <= kLargestBatch,
                 fmt::format("\"{}\" is not a number of samples", printable(text)), "--local-batch",
                 fmt::format("use all, or 1 to {}", kLargestBatch));
  return *samples;
}

void resolve_federated(RunConfig& config) {
  if (!is_federated(config)) return;
  config.epochs = config.strategy_options.federated.rounds;
  if (const auto samples = local_batch(config); samples > 0)
    config.batch.global_batch = static_cast<int>(samples);
  // A pipeline keeps its pieces until it is refused.
  if (!config.given.contains("micro-batches") && config.mesh_shape.pipe == 1) config.batch.micro_batches = 1;
  // The server of secure sums is the rank that keeps the run's log and ledger: the first, wherever it lies.
  if (!config.strategy_options.federated.secure.on()) return;
  require_option(!config.given.contains("rank-order") || config.comm.order == topology::RankOrder::launched,
                 "the server of a secure sum is the first rank that was launched, wherever it lies",
                 "--rank-order placed", "leave it out, or use --rank-order launched");
  config.comm.order = topology::RankOrder::launched;
}

void validate_federated(const RunConfig& config) {
  if (!is_federated(config)) return;
  const auto& options = config.strategy_options.federated;
  require_option(!config.given.contains("epochs"), "a federated run has rounds", "--epochs",
                 "use --rounds, and --local-epochs for what a client does in one");
  require_option(!config.given.contains("global-batch"), "clients make steps of their own", "--global-batch",
                 "use --local-batch");
  require_option(!config.given.contains("micro-batches"), "a client computes a local step in one piece",
                 "--micro-batches", "leave it out, and use a smaller --local-batch to save memory");
  if (!options.partition.empty()) federated::PartitionRule::parse(options.partition);
  if (config.given.contains("clients")) require_between(options.clients, 1, kMostClients, "--clients");
  if (config.given.contains("clients-per-round")) {
    require_between(options.clients_per_round, 1, kMostClients, "--clients-per-round");
    require_option(!config.given.contains("clients") || options.clients_per_round <= options.clients,
                   fmt::format("there are {} clients to sample from", options.clients),
                   fmt::format("--clients-per-round {}", options.clients_per_round),
                   fmt::format("use 1 to {}, or more --clients", options.clients));
  }
  require_between(options.rounds, 1, kMostRounds, "--rounds");
  require_between(options.local_epochs, 1, kMostLocalEpochs, "--local-epochs");
  local_batch(config);
  require_option(options.rule == "fedavg" || options.rule == "fednova" || options.rule == "scaffold" ||
                     options.rule == "local",
                 fmt::format("\"{}\" is not a value it takes", printable(options.rule)), "--federated-rule",
                 "use one of fedavg, fednova, scaffold, local");
  require_option(std::isfinite(options.proximal_mu) && options.proximal_mu >= 0,
                 fmt::format("{} is not a weight of the proximal term", options.proximal_mu), "--proximal-mu",
                 "use 0 (none) or more, such as 0.01");
  const auto& server = options.server_optimizer;
  require_option(server == "none" || server == "momentum" || server == "adam" || server == "yogi",
                 fmt::format("\"{}\" is not a value it takes", printable(server)), "--server-optimizer",
                 "use one of none, momentum, adam, yogi");
  require_option(!config.given.contains("server-rate") ||
                     (std::isfinite(options.server_rate) && options.server_rate > 0),
                 fmt::format("{} is not a rate to work with", options.server_rate), "--server-rate",
                 "use a positive number, such as 1");
  require_option(server != "none" || !config.given.contains("server-momentum"),
                 "the server takes the mean as it is", "--server-momentum",
                 "leave it out, or use --server-optimizer momentum, adam or yogi");
  require_option(options.server_momentum >= 0 && options.server_momentum < 1,
                 fmt::format("momentum {} is outside [0, 1)", options.server_momentum), "--server-momentum",
                 "use 0.9");
  require_option(options.drop_rate >= 0 && options.drop_rate < 1,
                 fmt::format("{} is outside [0, 1)", options.drop_rate), "--drop-rate",
                 "use a probability such as 0.1");
  require_option(std::isfinite(options.round_deadline) && options.round_deadline >= 0,
                 fmt::format("{} is not a time", options.round_deadline), "--round-deadline",
                 "use seconds, or 0 for none");
  if (options.rule == "local") require_nothing_shared(config);
  validate_secure_sums(config);
}

}  // namespace dtrain::train
