#include "topology/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "topology/invented_cluster.hpp"

namespace dtrain::topology {
namespace {

int nodes_touched(const Cluster& cluster, const std::vector<int>& ranks) {
  std::set<int> nodes;
  for (const int rank : ranks) nodes.insert(cluster.ranks[static_cast<std::size_t>(rank)].node);
  return static_cast<int>(nodes.size());
}

class MeshOn64Nodes : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MeshOn64Nodes, KeepsModelGroupsInsideANode) {
  const Cluster cluster = invent_cluster(64, 8, GetParam());
  const Mesh mesh(cluster, {.data = 64, .pipe = 2, .tensor = 4});
  for (int rank = 0; rank < 512; ++rank) {
    EXPECT_EQ(nodes_touched(cluster, mesh.group(rank, Axis::tensor)), 1);
    EXPECT_EQ(nodes_touched(cluster, mesh.group(rank, Axis::pipe)), 1);
    EXPECT_EQ(nodes_touched(cluster, mesh.group(rank, Axis::data)), 64);
  }
}

TEST_P(MeshOn64Nodes, KeepsTensorGroupsInsideANumaNode) {
  const Cluster cluster = invent_cluster(64, 8, GetParam());
  const Mesh mesh(cluster, {.data = 128, .pipe = 1, .tensor = 4});
  for (int rank = 0; rank < 512; ++rank) {
    std::set<int> numa;
    for (const int member : mesh.group(rank, Axis::tensor)) {
      numa.insert(cluster.ranks[static_cast<std::size_t>(member)].numa_node);
    }
    EXPECT_EQ(numa.size(), 1U);
  }
}

TEST_P(MeshOn64Nodes, SeatsEveryRankOnceAndGroupsAgree) {
  const Cluster cluster = invent_cluster(64, 8, GetParam());
  const Mesh mesh(cluster, {.data = 32, .pipe = 4, .tensor = 4});
  std::set<int> seen;
  for (int rank = 0; rank < 512; ++rank) {
    seen.insert(mesh.rank_at(mesh.coordinates(rank)));
    EXPECT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
    for (const Axis axis : {Axis::data, Axis::pipe, Axis::tensor}) {
      const std::vector<int> group = mesh.group(rank, axis);
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      for (const int member : group) EXPECT_EQ(mesh.group(member, axis), group);
    }
  }
  EXPECT_EQ(seen.size(), 512U);
}

INSTANTIATE_TEST_SUITE_P(LaunchOrders, MeshOn64Nodes,
                         testing::Values(block_order(512), cyclic_order(64, 8), random_order(512, 7)));

TEST(MeshTest, RefusesAShapeOfAnotherSize) {
  const Cluster cluster = invent_cluster(1, 4, block_order(4));
  EXPECT_THROW(Mesh(cluster, {.data = 3}), Error);
  EXPECT_THROW(Mesh(cluster, {.data = -4, .pipe = -1}), Error);
}

TEST(MeshTest, AnAxisCrossesNodesWhereItsGroupsDoNotFitOne) {
  const Cluster cluster = uniform_cluster(4, 8);
  cluster.validate();
  const Mesh hybrid(cluster, {.data = 2, .pipe = 2, .tensor = 8});
  EXPECT_FALSE(hybrid.crosses_nodes(cluster, Axis::tensor));
  EXPECT_TRUE(hybrid.crosses_nodes(cluster, Axis::pipe));
  EXPECT_TRUE(hybrid.crosses_nodes(cluster, Axis::data));
  const Mesh wide(cluster, {.data = 2, .pipe = 1, .tensor = 16});
  EXPECT_TRUE(wide.crosses_nodes(cluster, Axis::tensor));
  EXPECT_FALSE(wide.crosses_nodes(cluster, Axis::pipe));
  const Mesh odd(cluster, {.data = 2, .pipe = 8, .tensor = 2});
  EXPECT_FALSE(odd.crosses_nodes(cluster, Axis::tensor));
}

}  // namespace
}  // namespace dtrain::topology
