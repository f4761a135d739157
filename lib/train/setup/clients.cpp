#include "train/setup/clients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "comm/watch/shared_failure.hpp"
#include "core/error.hpp"
#include "core/shared_failure.hpp"
#include "parallel/strategy/federated/client_states.hpp"
#include "train/config/federated_setting.hpp"

namespace dtrain::train {
namespace {

/// The class of each training sample; empty where they have none, or several.
std::vector<std::int64_t> training_classes(const Workload& workload) {
  const auto& info = workload.dataset.info();
  if (info.classes.empty() || !info.target_shape.empty()) return {};
  std::vector<std::int64_t> ids(static_cast<std::size_t>(info.samples("train")));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  data::HostArray targets;
  workload.dataset.source("train", workload.read)->gather_targets(ids, targets);
  const auto found = targets.as<std::int64_t>();
  std::vector<std::int64_t> classes(found.begin(), found.end());
  for (const auto k : classes) {
    if (k < 0 || k >= std::ssize(info.classes))
      throw data_error(fmt::format("has a sample of class {} but only {} classes", k, info.classes.size()),
                       "train", "stage the dataset again");
  }
  return classes;
}

federated::PartitionRule rule_of(const RunConfig& config, const Workload& workload) {
  const auto& text = config.strategy_options.federated.partition;
  if (!text.empty()) return federated::PartitionRule::parse(text);
  using Kind = federated::PartitionRule::Kind;
  return {.kind = workload.dataset.info().sites.empty() ? Kind::iid : Kind::sites};
}

}  // namespace

std::unique_ptr<const federated::ClientRounds> client_rounds(const RunConfig& config,
                                                             const Workload& workload) {
  if (!is_federated(config)) return nullptr;
  const auto& options = config.strategy_options.federated;
  const auto& info = workload.dataset.info();
  const auto rule = rule_of(config, workload);
  std::vector<std::int64_t> classes;
  if (rule.needs_classes()) classes = training_classes(workload);
  std::vector<std::int32_t> sites;
  if (rule.kind == federated::PartitionRule::Kind::sites) sites = workload.dataset.sites("train");
  const auto all_sites = static_cast<int>(info.sites.size());
  const int usual = rule.kind == federated::PartitionRule::Kind::pooled ? 1
                    : sites.empty() ? parallel::FederatedOptions::kUsualClients
                                    : all_sites;
  auto partition = federated::Partition::make(rule, options.clients > 0 ? options.clients : usual,
                                              {.samples = info.samples("train"),
                                               .classes_of = classes,
                                               .classes = static_cast<int>(info.classes.size()),
                                               .sites_of = sites,
                                               .sites = all_sites,
                                               .site_names = info.sites},
                                              config.seed);
  const int clients = partition.clients();
  return std::make_unique<const federated::ClientRounds>(
      std::move(partition),
      federated::ClientRounds::Facts{
          .clients_per_round = options.clients_per_round > 0 ? options.clients_per_round : clients,
          .local_epochs = options.local_epochs,
          .local_batch = local_batch(config),
          .drop_rate = options.drop_rate,
          .seed = config.seed});
}

std::string in_words(const federated::ClientRounds& rounds, bool drawn) {
  const auto& partition = rounds.partition();
  auto least = partition.samples(0);
  auto most = least;
  for (int client = 1; client < partition.clients(); ++client) {
    least = std::min(least, partition.samples(client));
    most = std::max(most, partition.samples(client));
  }
  return fmt::format("{} hold {} to {} samples each, and {} are sampled for a round{}", partition.clients(),
                     least, most, rounds.sampled(1).size(), drawn ? " on average, each by chance" : "");
}

record::Clients described_clients(const RunConfig& config, const federated::Partition& partition,
                                  const Workload& workload) {
  const auto& info = workload.dataset.info();
  const auto owners = partition.owners();
  record::Clients clients{.rows = {}, .classes = {}, .owners = {owners.begin(), owners.end()}};
  const bool named = rule_of(config, workload).kind == federated::PartitionRule::Kind::sites;
  for (int client = 0; client < partition.clients(); ++client) {
    clients.rows.push_back({.client = client,
                            .name = named ? info.sites[static_cast<std::size_t>(client)] : std::string(),
                            .samples = partition.samples(client)});
  }
  clients.named = named;
  if (const auto classes = training_classes(workload); !classes.empty())
    clients.classes = partition.histogram(classes, static_cast<int>(info.classes.size()));
  return clients;
}

void take_over_client_states(const RunConfig& config, const state::ResumePoint& resume,
                             const std::filesystem::path& folder, const comm::Communicator& world) {
  const bool models = config.strategy_options.federated.rule == "local";  // which are no optimizer's state
  if (!clients_keep_states(config) || (config.output.optimizer_state == "reset" && !models)) return;
  const auto failure = failure_of([&] {
    if (world.rank() != 0) return;
    const auto run = std::filesystem::canonical(resume.folder).parent_path().parent_path();
    parallel::copy_client_states(run / "clients", folder, resume.info.step);
  });
  if (const auto shared = comm::first_failure(failure, world)) throw Error(*shared);
}

}  // namespace dtrain::train
