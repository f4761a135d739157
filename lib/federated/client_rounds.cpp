#include "federated/client_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "kernels/draws.hpp"

namespace dtrain::federated {
namespace {

/// The stream called `name` of a round; `minor`: the client it is for.
kernels::RandomKey round_key(std::string_view name, std::uint64_t seed, std::int64_t round, int minor = 0) {
  return {.seed = seed,
          .purpose = kernels::Purpose::sampling,
          .major = static_cast<std::uint32_t>(round),
          .minor = static_cast<std::uint32_t>(minor),
          .stream = kernels::stream_of(name)};
}

/// The index of a client's first micro-batch of a round, which says what layers draw in it: of the client
/// alone, whatever samples others have, or an update would tell of them. Multiples of 2^32 over the golden
/// ratio lie as far apart as can be (three-distance theorem): 10^5 clients have room for 19,000 steps each,
/// and more steps than that would share what they draw with another client's.
std::uint32_t first_index_of(int client) { return static_cast<std::uint32_t>(client) * 2654435769U; }

}  // namespace

ClientRounds::ClientRounds(Partition partition, const Facts& facts)
    : partition_(std::move(partition)), facts_(facts) {
  require(facts.clients_per_round >= 1 && facts.clients_per_round <= partition_.clients(),
          fmt::format("there are {} clients to sample from", partition_.clients()),
          {.subject = fmt::format("--clients-per-round {}", facts.clients_per_round),
           .advice = fmt::format("use 1 to {}, or more --clients", partition_.clients()),
           .code = ExitCode::usage});
}

std::vector<int> ClientRounds::sampled(std::int64_t round) const {
  const auto order = kernels::permutation(partition_.clients(), round_key("clients", facts_.seed, round));
  std::vector<int> clients(order.begin(), order.begin() + facts_.clients_per_round);
  std::ranges::sort(clients);
  return clients;
}

std::vector<int> ClientRounds::reporting(std::int64_t round) const {
  return without_dropped(round, sampled(round));
}

std::vector<int> ClientRounds::without_dropped(std::int64_t round, std::vector<int> clients) const {
  if (facts_.drop_rate <= 0) return clients;
  std::erase_if(clients, [&](int client) {
    return kernels::Draws(round_key("drop_out", facts_.seed, round, client)).unit() < facts_.drop_rate;
  });
  return clients;
}

std::int64_t ClientRounds::batch_of(int client) const {
  const auto samples = partition_.samples(client);
  return facts_.local_batch > 0 ? std::min(facts_.local_batch, samples) : samples;
}

std::int64_t ClientRounds::local_steps(int client) const {
  const auto batch = batch_of(client);
  return (partition_.samples(client) + batch - 1) / batch * facts_.local_epochs;
}

parallel::ClientFacts ClientRounds::facts_of(int client) const {
  return {
      .samples = partition_.samples(client), .batch = batch_of(client), .local_steps = local_steps(client)};
}

void ClientRounds::add_steps(std::int64_t round, int client, std::uint32_t first_draw,
                             const parallel::PrivateTraining* privacy, parallel::StepPlan& plan) const {
  const auto& ids = partition_.ids(client);
  const auto drawn = [&](std::uint32_t index) {
    return privacy != nullptr ? privacy->drawn_records(round, index, client) : std::nullopt;
  };
  if (auto places = drawn(first_draw)) {
    const auto end = first_draw + static_cast<std::uint32_t>(local_steps(client));
    for (auto index = first_draw; places;) {
      parallel::MicroBatch batch{.index = index, .ids = {}};
      for (const auto place : *places) batch.ids.push_back(ids[static_cast<std::size_t>(place)]);
      plan.micro_batches.push_back(std::move(batch));
      places = ++index < end ? drawn(index) : std::nullopt;
    }
    return;
  }
  const auto count = std::ssize(ids);
  const auto batch = batch_of(client);
  auto index = first_index_of(client);
  for (int epoch = 0; epoch < facts_.local_epochs; ++epoch) {
    auto key = round_key("local_order", facts_.seed, round, client);
    key.stream += static_cast<std::uint32_t>(epoch);
    const auto order = kernels::permutation(count, key);
    for (std::int64_t begin = 0; begin < count; begin += batch) {
      parallel::MicroBatch step{.index = index++, .ids = {}};
      for (auto i = begin; i < std::min(begin + batch, count); ++i)
        step.ids.push_back(ids[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]);
      plan.micro_batches.push_back(std::move(step));
    }
  }
}

std::int64_t ClientRounds::most_samples() const {
  std::int64_t most = 0;
  for (int client = 0; client < partition_.clients(); ++client)
    most = std::max(most, partition_.samples(client));
  return most;
}

/// Those of `asked` that are not among `clients`, dealt in turn, each with the phases that it answers before
/// it drops out.
std::vector<parallel::ClientDropout> ClientRounds::dropouts(std::int64_t round, const std::vector<int>& asked,
                                                            const std::vector<int>& clients, int rank,
                                                            int ranks) const {
  constexpr int kPhasesBeforeTheUpdate = 3;
  std::vector<parallel::ClientDropout> mine;
  int place = 0;
  for (const int client : asked) {
    if (std::ranges::binary_search(clients, client) || place++ % ranks != rank) continue;
    const double drawn = kernels::Draws(round_key("drop_phase", facts_.seed, round, client)).unit();
    mine.push_back({.client = client, .answers = static_cast<int>(drawn * kPhasesBeforeTheUpdate)});
  }
  return mine;
}

parallel::StepPlan ClientRounds::plan(std::int64_t round, int rank, int ranks,
                                      const parallel::PrivateTraining* privacy) const {
  const auto drawn = privacy != nullptr ? privacy->drawn_clients(round) : std::nullopt;
  auto asked = drawn ? *drawn : sampled(round);
  const auto clients = without_dropped(round, asked);
  auto largest_first = clients;
  std::ranges::stable_sort(largest_first, std::ranges::greater(),
                           [this](int client) { return partition_.samples(client); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks));
  std::vector<bool> mine(static_cast<std::size_t>(partition_.clients()), false);
  for (const int client : largest_first) {
    const auto least = std::ranges::min_element(load);
    *least += partition_.samples(client);
    mine[static_cast<std::size_t>(client)] = least - load.begin() == rank;
  }
  parallel::StepPlan plan{.number = round};
  parallel::RoundPlan facts{.clients = {},
                            .sampled = static_cast<int>(clients.size()),
                            .dropped = static_cast<int>(asked.size() - clients.size()),
                            .of = partition_.clients(),
                            .everyone = clients,
                            .dropouts = dropouts(round, asked, clients, rank, ranks),
                            .most_samples = most_samples()};
  facts.asked = std::move(asked);
  std::uint32_t draw = 0;  // of a client's first step, where records are drawn in secret: each has its own
  for (int client = 0; client < partition_.clients(); ++client) {
    const auto steps = local_steps(client);
    const auto first = std::exchange(draw, draw + static_cast<std::uint32_t>(steps));
    if (!std::ranges::binary_search(clients, client)) continue;
    facts.samples += partition_.samples(client);
    if (mine[static_cast<std::size_t>(client)]) {
      facts.clients.push_back({.client = client,
                               .samples = partition_.samples(client),
                               .first = plan.micro_batches.size(),
                               .steps = static_cast<std::size_t>(steps)});
      add_steps(round, client, first, privacy, plan);
    }
  }
  plan.round = std::make_shared<const parallel::RoundPlan>(std::move(facts));
  return plan;
}

}  // namespace dtrain::federated
