#include "federated/partition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "kernels/draws.hpp"

namespace dtrain::federated {
namespace {

using Ids = std::vector<std::int64_t>;
using Parts = std::vector<Ids>;  // by client
using Kind = PartitionRule::Kind;

/// The stream called `name` of an attempt; `minor`: the class it is for.
kernels::RandomKey partition_key(std::string_view name, std::uint64_t seed, int attempt,
                                 std::int64_t minor = 0) {
  return {.seed = seed,
          .purpose = kernels::Purpose::sampling,
          .major = static_cast<std::uint32_t>(attempt),
          .minor = static_cast<std::uint32_t>(minor),
          .stream = kernels::stream_of(name)};
}

/// Shares that add up to 1, drawn from a symmetric Dirichlet distribution.
std::vector<double> dirichlet(int parts, double concentration, const kernels::RandomKey& key) {
  kernels::Draws draws(key);
  std::vector<double> shares(static_cast<std::size_t>(parts));
  for (double& share : shares) share = draws.log_gamma(concentration);
  const double largest = *std::ranges::max_element(shares);
  for (double& share : shares) share = std::exp(share - largest);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

/// Adds to each client its share of `ids`, one part behind the other. What rounding leaves is the last one's
/// that has a share.
void deal(const Ids& ids, const std::vector<double>& shares, Parts& parts) {
  std::size_t last = parts.size() - 1;
  while (last > 0 && shares[last] == 0) --last;
  double sum = 0;
  std::int64_t begin = 0;
  for (std::size_t client = 0; client <= last; ++client) {
    sum += shares[client];
    const auto wanted = static_cast<std::int64_t>(sum * static_cast<double>(ids.size()));
    const auto end = client == last ? std::ssize(ids) : std::clamp(wanted, begin, std::ssize(ids));
    parts[client].insert(parts[client].end(), ids.begin() + begin, ids.begin() + end);
    begin = end;
  }
}

/// The same in equal shares, to the given clients alone.
void deal_evenly(const Ids& ids, const std::vector<int>& owners, Parts& parts) {
  const auto count = std::ssize(owners);
  for (std::int64_t k = 0; k < count; ++k) {
    auto& part = parts[static_cast<std::size_t>(owners[static_cast<std::size_t>(k)])];
    const auto begin = ids.begin() + std::ssize(ids) * k / count;
    part.insert(part.end(), begin, ids.begin() + std::ssize(ids) * (k + 1) / count);
  }
}

/// By class, each in an order drawn by chance.
std::vector<Ids> ids_by_class(const SampleFacts& facts, std::uint64_t seed, int attempt) {
  std::vector<Ids> by_class(static_cast<std::size_t>(facts.classes));
  for (const auto id : kernels::permutation(facts.samples, partition_key("partition_order", seed, attempt)))
    by_class[static_cast<std::size_t>(facts.classes_of[static_cast<std::size_t>(id)])].push_back(id);
  return by_class;
}

Parts by_dirichlet(double concentration, int clients, const SampleFacts& facts, std::uint64_t seed,
                   int attempt) {
  Parts parts(static_cast<std::size_t>(clients));
  const auto by_class = ids_by_class(facts, seed, attempt);
  for (std::size_t k = 0; k < by_class.size(); ++k) {
    const auto drawn =
        dirichlet(clients, concentration,
                  partition_key("partition_shares", seed, attempt, static_cast<std::int64_t>(k)));
    auto shares = drawn;
    for (std::size_t client = 0; client < parts.size(); ++client) {
      if (std::ssize(parts[client]) * clients >= facts.samples) shares[client] = 0;
    }
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    if (sum > 0) {
      for (double& share : shares) share /= sum;
    }
    deal(by_class[k], sum > 0 ? shares : drawn, parts);
  }
  return parts;
}

Parts by_quantity(double concentration, int clients, const SampleFacts& facts, std::uint64_t seed,
                  int attempt) {
  Parts parts(static_cast<std::size_t>(clients));
  deal(kernels::permutation(facts.samples, partition_key("partition_order", seed, attempt)),
       dirichlet(clients, concentration, partition_key("partition_shares", seed, attempt)), parts);
  return parts;
}

/// By class, the clients that have it: each client has `each` classes, and each class about as many clients.
std::vector<std::vector<int>> owners_by_class(int each, int clients, int classes, std::uint64_t seed) {
  std::vector<std::vector<int>> owners(static_cast<std::size_t>(classes));
  std::deque<std::int64_t> waiting;  // permutations of the classes, one behind the other
  int drawn = 0;
  for (int client = 0; client < clients; ++client) {
    std::vector<bool> has(static_cast<std::size_t>(classes), false);
    const auto is_new = [&](std::int64_t k) { return !has[static_cast<std::size_t>(k)]; };
    for (int taken = 0; taken < each; ++taken) {
      auto next = std::ranges::find_if(waiting, is_new);
      if (next == waiting.end()) {
        const auto more = kernels::permutation(classes, partition_key("partition_classes", seed, drawn++));
        waiting.insert(waiting.end(), more.begin(), more.end());
        next = std::ranges::find_if(waiting, is_new);
      }
      has[static_cast<std::size_t>(*next)] = true;
      owners[static_cast<std::size_t>(*next)].push_back(client);
      waiting.erase(next);
    }
  }
  return owners;
}

Parts by_classes(int each, int clients, const SampleFacts& facts, std::uint64_t seed) {
  const auto refuse_if = [&](bool bad, std::string_view problem, std::string_view advice) {
    if (bad) throw usage_error(problem, fmt::format("--partition classes={}", each), advice);
  };
  refuse_if(each > facts.classes, fmt::format("the dataset has {} classes", facts.classes),
            fmt::format("use at most {}", facts.classes));
  refuse_if(static_cast<std::int64_t>(each) * clients < facts.classes,
            fmt::format("{} clients leave classes out, of {}", clients, facts.classes),
            "use more clients, or more classes each");
  Parts parts(static_cast<std::size_t>(clients));
  const auto by_class = ids_by_class(facts, seed, 0);
  const auto owners = owners_by_class(each, clients, facts.classes, seed);
  for (std::size_t k = 0; k < by_class.size(); ++k) {
    // By chance: the first of many owners of few samples get none.
    std::vector<int> in_turn;
    for (const auto place : kernels::permutation(
             std::ssize(owners[k]), partition_key("partition_owners", seed, 0, static_cast<std::int64_t>(k))))
      in_turn.push_back(owners[k][static_cast<std::size_t>(place)]);
    deal_evenly(by_class[k], in_turn, parts);
  }
  return parts;
}

/// The number of clients is that of the owners, so that fewer clients are no way out.
void require_samples_of_sites(const Parts& parts, const SampleFacts& facts) {
  constexpr std::size_t kMostNamed = 10;
  std::vector<std::string> named;
  std::size_t empty = 0;
  for (std::size_t site = 0; site < parts.size(); ++site) {
    if (!parts[site].empty() || ++empty > kMostNamed) continue;
    named.push_back(site < facts.site_names.size() ? printable(facts.site_names[site])
                                                   : fmt::format("number {}", site));
  }
  if (empty == 0) return;
  throw usage_error(fmt::format("{} of {} owners have no training samples: {}{}", empty, parts.size(),
                                fmt::join(named, ", "), empty > named.size() ? ", ..." : ""),
                    "--partition sites",
                    "stage the dataset without the rows of these owners, or use another rule");
}

Parts by_sites(int clients, const SampleFacts& facts) {
  require(clients == facts.sites, fmt::format("the dataset has {} sites, and each is a client", facts.sites),
          {.subject = fmt::format("--clients {}", clients),
           .advice = "leave it out, or use another --partition",
           .code = ExitCode::usage});
  Parts parts(static_cast<std::size_t>(clients));
  for (std::int64_t id = 0; id < facts.samples; ++id)
    parts[static_cast<std::size_t>(facts.sites_of[static_cast<std::size_t>(id)])].push_back(id);
  require_samples_of_sites(parts, facts);
  return parts;
}

Parts parts_of(const PartitionRule& rule, int clients, const SampleFacts& facts, std::uint64_t seed,
               int attempt) {
  switch (rule.kind) {
    case Kind::dirichlet:
      return by_dirichlet(rule.concentration, clients, facts, seed, attempt);
    case Kind::quantity:
      return by_quantity(rule.concentration, clients, facts, seed, attempt);
    case Kind::classes:
      return by_classes(rule.classes, clients, facts, seed);
    case Kind::sites:
      return by_sites(clients, facts);
    case Kind::iid:
    case Kind::pooled:
      break;
  }
  Parts parts(static_cast<std::size_t>(clients));
  std::vector<int> all(parts.size());
  std::iota(all.begin(), all.end(), 0);
  deal_evenly(kernels::permutation(facts.samples, partition_key("partition_order", seed, attempt)), all,
              parts);
  return parts;
}

void check(const PartitionRule& rule, int clients, const SampleFacts& facts) {
  const auto refuse_if = [](bool bad, std::string_view problem, std::string_view option,
                            std::string_view advice) {
    if (bad) throw usage_error(problem, option, advice);
  };
  refuse_if(clients < 1, fmt::format("{} clients cannot train", clients), "--clients", "use 1 or more");
  refuse_if(clients > facts.samples,
            fmt::format("{} training samples leave clients without data", facts.samples),
            fmt::format("--clients {}", clients), fmt::format("use at most {}", facts.samples));
  refuse_if(rule.kind == Kind::pooled && clients != 1, "all samples lie with one client",
            fmt::format("--clients {}", clients), "leave it out, or use another --partition");
  refuse_if(rule.needs_classes() && facts.classes_of.empty(), "the samples have no classes to part them by",
            "--partition", "use iid, quantity=A, or sites where the dataset has them");
  refuse_if(rule.kind == Kind::sites && facts.sites_of.empty(), "the dataset names no owners of its rows",
            "--partition sites", "stage it with --site COLUMN, or use another partition");
}

}  // namespace

Partition Partition::make(const PartitionRule& rule, int clients, const SampleFacts& facts,
                          std::uint64_t seed) {
  check(rule, clients, facts);
  const bool draws_again = rule.kind == Kind::dirichlet || rule.kind == Kind::quantity;
  std::int64_t without_data = 0;
  for (int attempt = 0; attempt < (draws_again ? kAttempts : 1); ++attempt) {
    auto parts = parts_of(rule, clients, facts, seed, attempt);
    without_data = std::ranges::count_if(parts, [](const Ids& part) { return part.empty(); });
    if (without_data > 0) continue;
    for (auto& part : parts) std::ranges::sort(part);
    return Partition(std::move(parts));
  }
  throw usage_error(fmt::format("{} of {} clients would be without data", without_data, clients),
                    "--partition",
                    draws_again ? "use a larger A, or fewer clients" : "use fewer clients, or another rule");
}

std::int64_t Partition::samples() const {
  std::int64_t sum = 0;
  for (const auto& ids : ids_) sum += std::ssize(ids);
  return sum;
}

std::vector<std::int32_t> Partition::owners() const {
  std::vector<std::int32_t> owners(static_cast<std::size_t>(samples()));
  for (int client = 0; client < clients(); ++client) {
    for (const auto id : ids(client)) owners[static_cast<std::size_t>(id)] = client;
  }
  return owners;
}

std::vector<std::int64_t> Partition::histogram(std::span<const std::int64_t> classes_of, int classes) const {
  std::vector<std::int64_t> counts(ids_.size() * static_cast<std::size_t>(classes));
  for (std::size_t client = 0; client < ids_.size(); ++client) {
    for (const auto id : ids_[client]) {
      const auto k = static_cast<std::size_t>(classes_of[static_cast<std::size_t>(id)]);
      ++counts[client * static_cast<std::size_t>(classes) + k];
    }
  }
  return counts;
}

}  // namespace dtrain::federated
