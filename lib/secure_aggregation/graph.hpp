#pragma once

#include <vector>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

/// Clients above which each shares masks with some of the others only.
inline constexpr int kMostInACompleteGraph = 30;

/// How many others a client shares masks with, how many shares give a secret back, and how firmly the clients
/// that are left must hang together.
struct GraphPlan {
  int neighbours = 0;       ///< clients - 1: all others. Otherwise even.
  int share_threshold = 0;  ///< Of the holders: a client and its neighbours. More than half of them.
  int least_cut = 0;        ///< Graph::cut() of the survivors must be that much. 0: all are neighbours.
};

/// Up to 30 clients, all others are neighbours. Above, the fewest neighbours with which, when all but
/// `minimum_survivors` clients are lost at random, a round fails with a probability below 2^-20 because some
/// client's shares are not enough, and when a tenth of the clients, at random, gives its shares to the
/// server, that these are enough with one below 2^-40 (hypergeometric tails, summed over the clients). Nor
/// do the survivors, with these probabilities, have a smaller cut than `least_cut` by chance, or that tenth
/// as many clients as `least_cut` in any two stretches of the ring (summed over the pairs of stretches). All
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
  /// In their order; empty where all are neighbours.
  const std::vector<int>& ring() const { return ring_; }
  /// Ascending, without the client itself. `client` must be one of clients().
  const std::vector<int>& neighbours(int client) const;
  /// The neighbours and the client itself, ascending: each holds a share of the client's secrets.
  std::vector<int> holders(int client) const;
  /// How many of `among`, ascending, must go before the others may fall into parts without common masks: the
  /// fewest in two separate stretches of `neighbours` / 2 successive places on the ring. As many of them, on
  /// the server's side, lay the sum of a part open. 0: they fall into parts as they are. The largest int
  /// where all are neighbours.
  int cut(const std::vector<int>& among) const;

 private:
  std::size_t index(int client) const;

  std::vector<int> clients_;
  std::vector<std::vector<int>> neighbours_;  // [clients]
  std::vector<int> ring_;                     // [clients]
  std::size_t reach_ = 0;                     // neighbours on either side
};

}  // namespace dtrain::secure_aggregation
