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

/// Probability that `wanted` or more of `drawn` ones are among `marked` of `all`.
double as_many_as(int wanted, int drawn, int marked, int all) {
  return fewer_than(drawn - wanted + 1, drawn, all - marked, all);
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
  const int colluding = clients / 10;
  if (clients > kMostInACompleteGraph) {
    for (int neighbours = 2; neighbours < clients - 1 && neighbours < kMostHolders; neighbours += 2) {
      const int threshold = (neighbours + 1) / 2 + 1;
      // Of a client that is left, the others that are left hold shares; of a lost one, all that are left.
      const double fails = fewer_than(threshold, neighbours, minimum_survivors - 1, clients - 1);
      // Fewer than that many neighbours are honest exactly where those that collude are the threshold or
      // more.
      const int honest = clients - 1 - colluding;
      const double leaks = fewer_than(neighbours - threshold + 1, neighbours, honest, clients - 1);
      if (clients * fails >= kFails || clients * leaks >= kLeaks) continue;
      // A server that lies may leave out every client that it can, but none of its own.
      const double pairs = 0.5 * clients * clients;
      const int places = std::min(neighbours, minimum_survivors);
      int cut = 1;
      while (pairs * as_many_as(cut, places, colluding, minimum_survivors) >= kLeaks) ++cut;
      if (pairs * fewer_than(cut, neighbours, minimum_survivors, clients) < kFails) {
        return {neighbours, threshold, cut};
      }
    }
  }
  if (clients > kMostHolders) {
    throw usage_error(
        fmt::format("{} clients of which {} may be lost would need more than {} holders of a share", clients,
                    clients - minimum_survivors, kMostHolders),
        "secure aggregation", "ask for more survivors");
  }
  return {clients - 1, minimum_survivors, 0};
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
  reach_ = static_cast<std::size_t>(neighbours) / 2;
  for (std::size_t place = 0; place < count; ++place) {
    ring_.push_back(clients_[order[place]]);
    auto& own = neighbours_[order[place]];
    for (std::size_t step = 1; step <= reach_; ++step) {
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

int Graph::cut(const std::vector<int>& among) const {
  constexpr int kNone = std::numeric_limits<int>::max();
  const auto count = ring_.size();
  if (ring_.empty()) return kNone;
  const auto there = [&](std::size_t place) {
    return static_cast<int>(std::binary_search(among.begin(), among.end(), ring_[place % count]));
  };
  std::vector<int> inside(count, 0);  // of the stretch that begins at a place
  for (std::size_t step = 0; step < reach_; ++step) inside[0] += there(step);
  for (std::size_t place = 1; place < count; ++place) {
    inside[place] = inside[place - 1] - there(place - 1) + there(place + reach_ - 1);
  }
  std::vector<int> from_here(inside);  // the least of the stretches that begin here or later
  for (std::size_t place = count - 1; place > 0; --place) {
    from_here[place - 1] = std::min(from_here[place - 1], from_here[place]);
  }
  int least = kNone;
  for (std::size_t first = 0; first + reach_ < count; ++first) {
    int other = kNone;
    if (first >= reach_) {
      other = from_here[first + reach_];
    } else {  // the last stretches would reach around to this one
      for (auto second = first + reach_; second <= count - reach_ + first; ++second) {
        other = std::min(other, inside[second]);
      }
    }
    least = std::min(least, inside[first] + other);
  }
  return least;
}

}  // namespace dtrain::secure_aggregation
