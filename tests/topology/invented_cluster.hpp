#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace dtrain::topology {

/// `nodes` x `ranks_per_node` ranks, two NUMA nodes per node; `order[r]` says on which seat rank r sits,
/// seats being counted node after node.
inline Cluster invent_cluster(int nodes, int ranks_per_node, const std::vector<int>& order) {
  Cluster cluster;
  std::vector<int> seated(static_cast<std::size_t>(nodes), 0);
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    const int seat = order[static_cast<std::size_t>(rank)];
    RankPlace place;
    place.rank = rank;
    place.node = seat / ranks_per_node;
    place.hostname = "node" + std::to_string(place.node);
    place.local_rank = seated[static_cast<std::size_t>(place.node)]++;
    place.numa_node = seat % ranks_per_node * 2 / ranks_per_node;
    place.cpus = {seat % ranks_per_node};
    cluster.ranks.push_back(place);
  }
  return cluster;
}

inline std::vector<int> block_order(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// As `mpirun --map-by node` deals: rank 0 on node 0, rank 1 on node 1, ...
inline std::vector<int> cyclic_order(int nodes, int ranks_per_node) {
  std::vector<int> order;
  for (int rank = 0; rank < nodes * ranks_per_node; ++rank) {
    order.push_back(rank % nodes * ranks_per_node + rank / nodes);
  }
  return order;
}

inline std::vector<int> random_order(int ranks, unsigned seed) {
  std::vector<int> order = block_order(ranks);
  std::mt19937 generator(seed);
  std::shuffle(order.begin(), order.end(), generator);
  return order;
}

}  // namespace dtrain::topology
