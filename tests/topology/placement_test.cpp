// Placement on machines that do not exist: what comes out, as values.
#include "topology/placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "topology/mesh.hpp"

namespace dtrain::topology {
namespace {

using Groups = std::vector<std::vector<int>>;

/// What the nodes of an invented cluster hold.
struct Node {
  int ranks = 8;
  std::vector<Gpu> gpus;
  std::string switches = {};
};

std::vector<Gpu> nvswitch_gpus() {
  std::vector<Gpu> gpus;
  for (int gpu = 0; gpu < 8; ++gpu) {
    gpus.push_back({.uuid = "GPU-" + std::to_string(gpu), .numa_node = gpu / 4, .nvlinks = {gpu}});
  }
  return gpus;
}

/// Four GPUs, joined as 0-2 and 1-3: neighbours in number are not neighbours in links.
std::vector<Gpu> two_island_gpus() {
  return {{.uuid = "GPU-0", .numa_node = 0, .nvlinks = {2}},
          {.uuid = "GPU-1", .numa_node = 0, .nvlinks = {3}},
          {.uuid = "GPU-2", .numa_node = 1, .nvlinks = {0}},
          {.uuid = "GPU-3", .numa_node = 1, .nvlinks = {1}}};
}

/// `node_of_rank[r]`: where the launcher put rank r. GPUs are dealt as on a real node.
Cluster invent(const std::vector<Node>& nodes, const std::vector<int>& node_of_rank) {
  Cluster cluster;
  std::vector<int> seated(nodes.size(), 0);
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto node = static_cast<std::size_t>(node_of_rank[rank]);
    const auto dealt =
        deal_gpus(nodes[node].gpus, std::vector<int>(static_cast<std::size_t>(nodes[node].ranks), -1));
    RankPlace place;
    place.rank = static_cast<int>(rank);
    place.node = node_of_rank[rank];
    place.local_rank = seated[node]++;
    place.switches = nodes[node].switches;
    place.gpu = dealt[static_cast<std::size_t>(place.local_rank)];
    if (place.gpu >= 0) {
      const auto gpu = static_cast<std::size_t>(place.gpu);
      place.device_uuid = nodes[node].gpus[gpu].uuid;
      place.numa_node = nodes[node].gpus[gpu].numa_node;
      place.island = islands(nodes[node].gpus)[gpu];
    }
    cluster.ranks.push_back(place);
  }
  return cluster;
}

std::vector<int> block(const std::vector<Node>& nodes) {
  std::vector<int> node_of_rank;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    node_of_rank.insert(node_of_rank.end(), static_cast<std::size_t>(nodes[node].ranks),
                        static_cast<int>(node));
  }
  return node_of_rank;
}

/// One rank on each node with room in turn, as `mpirun --map-by node` deals.
std::vector<int> cyclic(const std::vector<Node>& nodes) {
  std::vector<int> node_of_rank;
  const auto total = block(nodes).size();
  for (int round = 0; node_of_rank.size() < total; ++round) {
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      if (round < nodes[node].ranks) node_of_rank.push_back(static_cast<int>(node));
    }
  }
  return node_of_rank;
}

Groups groups_of(const Mesh& mesh, Axis axis) {
  std::set<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.shape().size(); ++rank) groups.insert(mesh.group(rank, axis));
  return {groups.begin(), groups.end()};
}

TEST(PlacementTest, FourNodesOfEightGpusOnAnNvswitch) {
  const std::vector<Node> nodes(4, {.ranks = 8, .gpus = nvswitch_gpus()});
  EXPECT_EQ(islands(nodes[0].gpus), std::vector<int>(8, 0));
  const Mesh mesh(invent(nodes, block(nodes)), {.data = 4, .pipe = 2, .tensor = 4});
  EXPECT_EQ(groups_of(mesh, Axis::tensor), (Groups{{0, 1, 2, 3},
                                                   {4, 5, 6, 7},
                                                   {8, 9, 10, 11},
                                                   {12, 13, 14, 15},
                                                   {16, 17, 18, 19},
                                                   {20, 21, 22, 23},
                                                   {24, 25, 26, 27},
                                                   {28, 29, 30, 31}}));
  EXPECT_EQ(mesh.group(1, Axis::pipe), (std::vector<int>{1, 5}));
  EXPECT_EQ(mesh.group(1, Axis::data), (std::vector<int>{1, 9, 17, 25}));
}

TEST(PlacementTest, TheSameFromACyclicLauncher) {
  const std::vector<Node> nodes(4, {.ranks = 8, .gpus = nvswitch_gpus()});
  const Cluster cluster = invent(nodes, cyclic(nodes));
  const Mesh mesh(cluster, {.data = 4, .pipe = 2, .tensor = 4});
  EXPECT_EQ(mesh.group(0, Axis::tensor), (std::vector<int>{0, 4, 8, 12}));  // all of node 0
  EXPECT_EQ(mesh.group(0, Axis::pipe), (std::vector<int>{0, 16}));          // also
  EXPECT_EQ(mesh.group(0, Axis::data), (std::vector<int>{0, 1, 2, 3}));     // one per node
  EXPECT_FALSE(mesh.crosses_nodes(cluster, Axis::pipe));
  const Mesh as_launched(cluster, {.data = 4, .pipe = 2, .tensor = 4}, RankOrder::launched);
  EXPECT_EQ(as_launched.group(0, Axis::tensor), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(as_launched.crosses_nodes(cluster, Axis::tensor));
}

TEST(PlacementTest, TensorGroupsStayOnIslandsOfNvlink) {
  const std::vector<Node> nodes(2, {.ranks = 4, .gpus = two_island_gpus()});
  EXPECT_EQ(islands(nodes[0].gpus), (std::vector<int>{0, 1, 0, 1}));
  const Mesh mesh(invent(nodes, block(nodes)), {.data = 2, .pipe = 2, .tensor = 2});
  EXPECT_EQ(groups_of(mesh, Axis::tensor), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(mesh, Axis::data), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(PlacementTest, UnevenNodesKeepWholeGroupsAndJoinWhatIsLeft) {
  const std::vector<Node> nodes = {{.ranks = 3}, {.ranks = 4}, {.ranks = 1}};
  const Mesh mesh(invent(nodes, block(nodes)), {.data = 4, .pipe = 2, .tensor = 1});
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 1}, {2, 7}, {3, 4}, {5, 6}}));
}

/// The next ranks on a node of their own, so many on each of its NUMA nodes.
void add_node(Cluster& cluster, int node, const std::vector<int>& ranks_of_numa) {
  int local_rank = 0;
  for (std::size_t numa = 0; numa < ranks_of_numa.size(); ++numa) {
    for (int i = 0; i < ranks_of_numa[numa]; ++i) {
      RankPlace place;
      place.rank = cluster.world_size();
      place.node = node;
      place.local_rank = local_rank++;
      place.numa_node = static_cast<int>(numa);
      cluster.ranks.push_back(place);
    }
  }
}

TEST(PlacementTest, PipelinesStayOnANodeWhoseNumaNodesAreUneven) {
  Cluster cluster;
  add_node(cluster, 0, {3, 4});
  add_node(cluster, 1, {1, 4});
  const Mesh mesh(cluster, {.data = 2, .pipe = 3, .tensor = 2});
  // Rank 2 is left over on its NUMA node and on its node; the slices that it makes with rank 7 come between
  // others of node 0 in the order of places.
  EXPECT_EQ(groups_of(mesh, Axis::tensor), (Groups{{0, 1}, {2, 7}, {3, 4}, {5, 6}, {8, 9}, {10, 11}}));
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 3, 5}, {1, 4, 6}, {2, 8, 10}, {7, 9, 11}}));
}

TEST(PlacementTest, LeftoversOfNodesUnderOneSwitchAreJoined) {
  const std::vector<Node> nodes = {{.ranks = 1, .gpus = {}, .switches = "spine.leaf1"},
                                   {.ranks = 1, .gpus = {}, .switches = "spine.leaf2"},
                                   {.ranks = 1, .gpus = {}, .switches = "spine.leaf1"},
                                   {.ranks = 1, .gpus = {}, .switches = "spine.leaf2"}};
  const Mesh mesh(invent(nodes, block(nodes)), {.data = 2, .pipe = 2, .tensor = 1});
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 2}, {1, 3}}));
}

TEST(PlacementTest, AModelLargerThanANodeTakesNeighbouringNodes) {
  const std::vector<Node> nodes(4, {.ranks = 2});
  const Cluster cluster = invent(nodes, cyclic(nodes));
  const Mesh mesh(cluster, {.data = 2, .pipe = 2, .tensor = 2});
  EXPECT_EQ(groups_of(mesh, Axis::tensor), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(PlacementTest, MoreRanksThanGpusShareThemEvenly) {
  const std::vector<Gpu> gpus = two_island_gpus();
  EXPECT_EQ(deal_gpus(gpus, std::vector<int>(6, -1)), (std::vector<int>{0, 0, 1, 1, 2, 3}));
  const std::vector<Node> nodes = {{.ranks = 8, .gpus = gpus}};
  const Mesh mesh(invent(nodes, block(nodes)), {.data = 2, .pipe = 2, .tensor = 2});
  EXPECT_EQ(groups_of(mesh, Axis::tensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));  // of one GPU each
  EXPECT_EQ(groups_of(mesh, Axis::pipe), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));    // of one island each
}

TEST(PlacementTest, RanksTakeGpusBesideTheirCores) {
  EXPECT_EQ(deal_gpus(nvswitch_gpus(), {1, 0}), (std::vector<int>{4, 0}));
  EXPECT_EQ(deal_gpus(two_island_gpus(), {-1, 0, 0, 0}), (std::vector<int>{2, 0, 1, 3}));
  EXPECT_EQ(deal_gpus({}, {0, 0}), (std::vector<int>{-1, -1}));
}

TEST(PlacementTest, CoresAreSharedInRuns) {
  const std::vector<std::vector<int>> cores = {{0}, {1}, {2}, {3}, {8}, {9}, {10}};
  EXPECT_EQ(share_of_cores(cores, 0, 2), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(share_of_cores(cores, 1, 2), (std::vector<int>{3, 8, 9, 10}));
  EXPECT_EQ(share_of_cores({{4}, {5}}, 2, 3), (std::vector<int>{4}));
  EXPECT_EQ(share_of_cores({}, 0, 1), std::vector<int>{});
}

TEST(PlacementTest, HardwareThreadsOfACoreGoToOneRank) {
  // As kernels number them: the second thread of each core after the first ones of all.
  const std::vector<std::vector<int>> cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(share_of_cores(cores, 0, 2), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(share_of_cores(cores, 1, 2), (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(share_of_cores(cores, 4, 5), (std::vector<int>{0, 4}));
}

}  // namespace
}  // namespace dtrain::topology
