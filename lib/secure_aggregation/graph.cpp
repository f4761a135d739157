#include "secure_aggregation/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "secure_aggregation/shamir.hpp"

namespace dtrain::secure_aggregation {
namespace {

double log_choose(int from, int count) {
  return std::lgamma(from + 1.0) - std::lgamma(count + 1.0) - std::lgamma(from - count + 1.0);
}

/// Probability that fewer than `wanted` of `drawn` ones are among `marked` of `all`.
double fewer_than(int wanted, int drawn, int marked, int all) {
  double sum = 0;
  for (int hits = std::max(0, drawn - (all - marked)); hits < wanted && hits <= std::min(drawn, marked);
       ++hits) {
    sum +=
        std::exp(log_choose(marked, hits) + log_choose(all - marked, drawn - hits) - log_choose(all, drawn));
  }
  return sum;
}

/// Uniform in [0, bound), by rejection. Nothing of it is secret.
class PublicDraws {
 public:
  explicit PublicDraws(const Digest& seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    const auto most = std::numeric_limits<std::uint64_t>::max();
    const auto rejected = (most % bound + 1) % bound;
    std::uint64_t drawn = 0;
    do {
      Block<64> stream;
      chacha20(seed_, Nonce{}, block_++, stream);
      std::memcpy(&drawn, stream.data(), sizeof(drawn));
    } while (drawn > most - rejected);
    return drawn % bound;
  }

 private:
  Secret seed_;
  std::uint32_t block_ = 0;
};

}  // namespace

GraphPlan plan_graph(int clients, int minimum_survivors) {
  constexpr double kFails = 0x1p-20;
  constexpr double kLeaks = 0x1p-40;
  constexpr int kOneColludesOf = 10;
  if (clients > kMostInACompleteGraph) {
    for (int neighbours = 2; neighbours < clients - 1 && neighbours < kMostHolders; neighbours += 2) {
      const int threshold = (neighbours + 1) / 2 + 1;
      // Of a client that is left, the others that are left hold shares; of a lost one, all that are left.
      const double fails = fewer_than(threshold, neighbours, minimum_survivors - 1, clients - 1);
      // Fewer than that many neighbours are honest exactly where those that collude are the threshold or
      // more.
      const int honest = clients - 1 - clients / kOneColludesOf;
      const double leaks = fewer_than(neighbours - threshold + 1, neighbours, honest, clients - 1);
      if (clients * fails < kFails && clients * leaks < kLeaks) return {neighbours, threshold};
    }
  }
  if (clients > kMostHolders) {
    throw usage_error(
        fmt::format("{} clients of which {} may be lost would need more than {} holders of a share", clients,
                    clients - minimum_survivors, kMostHolders),
        "secure aggregation", "ask for more survivors");
  }
  return {clients - 1, minimum_survivors};
}

Graph::Graph(std::vector<int> clients, int neighbours, const Digest& seed) : clients_(std::move(clients)) {
  const auto count = clients_.size();
  neighbours_.resize(count);
  if (static_cast<std::size_t>(neighbours) + 1 >= count) {
    for (std::size_t i = 0; i < count; ++i) {
      neighbours_[i] = clients_;
      neighbours_[i].erase(neighbours_[i].begin() + static_cast<std::ptrdiff_t>(i));
    }
    return;
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  PublicDraws draws(seed);
  for (std::size_t left = count; left > 1; --left) std::swap(order[left - 1], order[draws.below(left)]);
  for (std::size_t place = 0; place < count; ++place) {
    auto& own = neighbours_[order[place]];
    for (std::size_t step = 1; step <= static_cast<std::size_t>(neighbours) / 2; ++step) {
      own.push_back(clients_[order[(place + step) % count]]);
      own.push_back(clients_[order[(place + count - step) % count]]);
    }
    std::sort(own.begin(), own.end());
  }
}

std::size_t Graph::index(int client) const {
  const auto found = std::lower_bound(clients_.begin(), clients_.end(), client);
  require(found != clients_.end() && *found == client, "no client of this round",
          {.subject = "secure aggregation"});
  return static_cast<std::size_t>(found - clients_.begin());
}

const std::vector<int>& Graph::neighbours(int client) const { return neighbours_[index(client)]; }

std::vector<int> Graph::holders(int client) const {
  auto all = neighbours(client);
  all.insert(std::lower_bound(all.begin(), all.end(), client), client);
  return all;
}

bool Graph::connects(const std::vector<int>& among) const {
  std::vector<int> left = among;
  std::vector<int> reached;
  if (!left.empty()) {
    reached.push_back(left.back());
    left.pop_back();
  }
  for (std::size_t next = 0; next < reached.size(); ++next) {
    for (const int client : neighbours(reached[next])) {
      const auto found = std::lower_bound(left.begin(), left.end(), client);
      if (found == left.end() || *found != client) continue;
      reached.push_back(client);
      left.erase(found);
    }
  }
  return left.empty();
}

}  // namespace dtrain::secure_aggregation
