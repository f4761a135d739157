#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "topology/cluster.hpp"

namespace dtrain::comm {

/// What one node can send to another.
struct LinkSpeed {
  int from = 0;  ///< Node.
  int to = 0;
  double bytes_per_s = 0;
};

struct LinkTest {
  std::size_t bytes = std::size_t{2} << 20;  ///< Of one message.
  int repeats = 3;                           ///< The quickest counts.
  double limit_s = 20;                       ///< For one message.
};

/// The pairs of a tournament's round: in rounds_of(nodes) rounds each node meets each other once, at most
/// one in a round.
std::vector<std::pair<int, int>> pairs_of_round(int nodes, int round);
int rounds_of(int nodes);

/// Each direction of each pair of nodes, between their first ranks, while the other pairs of the round are
/// busy too, as in a collective. Of more than 65 nodes each meets 64 others. Collective over `world`, whose
/// other ranks sleep; the same value on every rank. Throws Error, naming both hosts, when a message does not
/// arrive in time.
std::vector<LinkSpeed> measure_link_speeds(const Communicator& world, const topology::Cluster& cluster,
                                           const LinkTest& test = {});

/// These links once more, one after the other: what was slow only because the nodes were busy is not slow
/// now.
std::vector<LinkSpeed> measure_again(const Communicator& world, const topology::Cluster& cluster,
                                     const std::vector<LinkSpeed>& links, const LinkTest& test = {});

}  // namespace dtrain::comm
