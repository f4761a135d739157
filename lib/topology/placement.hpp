#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::topology {

/// The ranks in the order of a mesh's positions, tensor fastest: tensor groups within an island of NVLink and
/// a NUMA node, then pipelines within a node, as far as those have room for whole groups; what is left over
/// in one is joined with what is left over beside it, under the same switch before others. So also where
/// nodes hold different numbers of ranks, whatever order the launcher gave.
std::vector<int> seats(const Cluster& cluster, MeshShape shape);

/// What carries messages between two ranks.
enum class Link { same_gpu, nvlink, pcie, numa_node, memory, network };
Link link_between(const RankPlace& a, const RankPlace& b);
std::string_view name_of(Link link);

/// A GPU of one node, as its ranks see it.
struct Gpu {
  std::string uuid;
  int numa_node = -1;
  std::vector<int> nvlinks;  ///< Indices of the GPUs it has links with; itself where they pass a switch.
};

/// For each GPU the number of its island: GPUs that NVLink joins, directly, through another or by a switch.
/// Islands are numbered by their first GPU.
std::vector<int> islands(const std::vector<Gpu>& gpus);

/// A GPU for each of a node's ranks, as evenly as it goes, on the NUMA node of the rank's cores where one is
/// free there (-1: anywhere), and else in order. More ranks than GPUs share, neighbours first. No GPU: all
/// -1.
std::vector<int> deal_gpus(const std::vector<Gpu>& gpus, const std::vector<int>& numa_node_of_rank);

/// The hardware threads, ascending, that local rank `local_rank` of `local_size` should have of `cores`,
/// which all of them may use: those of an equal run of neighbours, at least of one core; ranks beyond the
/// cores share. A core is the list of its threads, so that no two ranks get threads of one core.
std::vector<int> share_of_cores(const std::vector<std::vector<int>>& cores, int local_rank, int local_size);

}  // namespace dtrain::topology
