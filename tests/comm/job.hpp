#pragma once

#include <utility>

#include "comm/groups.hpp"
#include "comm/survey/discover.hpp"
#include "core/span_sink.hpp"

namespace dtrain::comm {

/// A cluster with the ranks of this job on `nodes` invented nodes, block after block: the ranks of one
/// invented node share memory, the others exchange messages, though all run on one machine.
inline topology::Cluster spread_over(topology::Cluster cluster, int nodes) {
  const int size = cluster.world_size();
  for (int rank = 0; rank < size; ++rank) {
    topology::RankPlace& place = cluster.ranks[static_cast<std::size_t>(rank)];
    place.node = rank * nodes / size;
    const int first = (place.node * size + nodes - 1) / nodes;
    place.local_rank = rank - first;
  }
  return cluster;
}

/// What a test needs to communicate: the groups of this job on a mesh of data=N unless told otherwise.
class Job {
 public:
  explicit Job(int nodes = 1, CommConfig config = {}, topology::MeshShape shape = {.data = 0})
      : world(Communicator::duplicate(MPI_COMM_WORLD)),
        cluster(spread_over(discover_cluster(world, affinity_mask()), nodes)),
        groups(make_groups(world, cluster, topology::Mesh(cluster, shape.data == 0 ? data_only() : shape),
                           quick(config), sink)) {}

  int rank() const { return world.rank(); }
  int size() const { return world.size(); }

  NullSpanSink sink;
  Communicator world;
  topology::Cluster cluster;
  Groups groups;

 private:
  topology::MeshShape data_only() const { return {.data = world.size()}; }
  static CommConfig quick(CommConfig config) {  // no test waits for 300 s
    if (config.timeout_s == CommConfig().timeout_s) config.timeout_s = 30;
    return config;
  }
};

}  // namespace dtrain::comm
