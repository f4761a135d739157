#pragma once

#include <string>
#include <vector>

namespace dtrain::topology {

/// Where one rank runs. A plain value: comm discovers it, tests invent it.
struct RankPlace {
  int rank = 0;             ///< In the job as it is now.
  int first_rank = 0;       ///< In MPI_COMM_WORLD at the start: the name of the rank in messages and files.
  std::string hostname;     ///< As the operating system says it.
  int node = 0;             ///< Index of the node, in [0, nodes); equal iff the ranks can share memory.
  int local_rank = 0;       ///< In [0, ranks on this node).
  int machine = -1;         ///< Whose cores and GPUs it uses: index of the first node there; -1: as `node`.
  std::string switches;     ///< Of the network above the node, outermost first, as Slurm says it; or empty.
  int numa_node = -1;       ///< Of the cores in the mask; -1 when they span several.
  std::vector<int> cpus;    ///< Cores this rank may use (its affinity mask), ascending.
  int gpu = -1;             ///< Index on its node of the GPU it uses; -1 for the CPU.
  std::string device_uuid;  ///< Of that GPU; empty for the CPU.
  std::string device_bus;   ///< Of its card, whose MIG slices each have a UUID; empty: not known.
  int island = -1;          ///< Of the node's GPUs that NVLink joins, the island of that GPU; -1 for the CPU.
};

/// Every rank's place, indexed by rank.
struct Cluster {
  std::vector<RankPlace> ranks;

  int world_size() const { return static_cast<int>(ranks.size()); }
  int node_count() const;
  int local_size(int node) const;  ///< Ranks on that node.

  std::vector<int> leaders() const;  ///< Of each node the first rank.

  /// Cores per rank on the machine of `rank` when its ranks share their masks' union evenly. At least 1 core
  /// is assumed; below 1.0 the machine is oversubscribed.
  double cores_per_rank(int rank) const;

  /// Where several nodes, as these are of ranks that share memory, are one machine: the ranks of each such
  /// machine.
  std::vector<std::vector<int>> parted_machines() const;

  bool shares_gpus() const;  ///< Whether some GPU serves several ranks.
  /// A sentence for each that does: `ranks 0, 1 share GPU 0 of node7`.
  std::vector<std::string> shared_gpus() const;

  /// Throws Error when indices are not dense.
  void validate() const;
};

/// A cluster that need not exist: on each node as many ranks, in order, each with a core or GPU of its own.
Cluster uniform_cluster(int nodes, int ranks_per_node);

}  // namespace dtrain::topology
