#pragma once

#include <vector>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

/// Clients above which each shares masks with some of the others only.
inline constexpr int kMostInACompleteGraph = 30;

/// How many others a client shares masks with, and how many shares give a secret back.
struct GraphPlan {
  int neighbours = 0;       ///< clients - 1: all others. Otherwise even.
  int share_threshold = 0;  ///< Of the holders: a client and its neighbours. More than half of them.
};

/// Up to 30 clients, all others are neighbours. Above, the fewest neighbours with which, when all but
/// `minimum_survivors` clients are lost at random, a round fails with a probability below 2^-20 because some
/// client's shares are not enough, and when a tenth of the clients, at random, gives its shares to the
/// server, that these are enough with one below 2^-40 (hypergeometric tails, summed over the clients). All
/// others, where that takes as many. 2 * minimum_survivors > clients. Throws Error (exit code 2) where a
/// secret would have more than 255 holders. Source: Bell et al. 2020, section 3.
GraphPlan plan_graph(int clients, int minimum_survivors);

/// Which clients share masks: each with `neighbours` / 2 on either side on a ring in a random order, or with
/// all others where `neighbours` are at least those.
class Graph {
 public:
  /// `clients` ascending. The order is a pure function of `seed`, so that each client finds it by itself and
  /// the server cannot choose it. Source: Bell et al. 2020 (Harary graphs).
  Graph(std::vector<int> clients, int neighbours, const Digest& seed);

  const std::vector<int>& clients() const { return clients_; }
  /// Ascending, without the client itself. `client` must be one of clients().
  const std::vector<int>& neighbours(int client) const;
  /// The neighbours and the client itself, ascending: each holds a share of the client's secrets.
  std::vector<int> holders(int client) const;
  /// Whether one can get from each of `among`, ascending, to each other through neighbours of these. If not,
  /// the sum of a part of them follows from the masked vectors.
  bool connects(const std::vector<int>& among) const;

 private:
  std::size_t index(int client) const;

  std::vector<int> clients_;
  std::vector<std::vector<int>> neighbours_;  // [clients]
};

}  // namespace dtrain::secure_aggregation
