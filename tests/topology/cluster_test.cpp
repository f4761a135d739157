#include "topology/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "topology/invented_cluster.hpp"

namespace dtrain::topology {
namespace {

using testing::HasSubstr;

TEST(ClusterTest, CountsNodesAndRanksOfSixtyFourNodes) {
  const Cluster cluster = invent_cluster(64, 8, random_order(512, 1));
  EXPECT_NO_THROW(cluster.validate());
  EXPECT_EQ(cluster.world_size(), 512);
  EXPECT_EQ(cluster.node_count(), 64);
  for (int node = 0; node < 64; ++node) EXPECT_EQ(cluster.local_size(node), 8);
}

TEST(ClusterTest, LeadersAreTheFirstRanksOfTheNodes) {
  EXPECT_EQ(invent_cluster(2, 2, cyclic_order(2, 2)).leaders(), (std::vector<int>{0, 1}));
  EXPECT_EQ(invent_cluster(2, 2, {2, 3, 0, 1}).leaders(), (std::vector<int>{2, 0}));
}

TEST(ClusterTest, SharesCoresOfOverlappingMasksEvenly) {
  Cluster cluster = invent_cluster(1, 4, block_order(4));
  EXPECT_DOUBLE_EQ(cluster.cores_per_rank(0), 1.0);
  for (RankPlace& place : cluster.ranks) place.cpus = {0, 1};
  EXPECT_DOUBLE_EQ(cluster.cores_per_rank(3), 0.5);
}

TEST(ClusterTest, RanksWithMemoriesOfTheirOwnShareTheirMachinesCores) {
  Cluster cluster = invent_cluster(3, 2, block_order(6));
  for (RankPlace& place : cluster.ranks) {
    place.cpus = {0, 1};
    place.first_rank = place.rank;
  }
  EXPECT_DOUBLE_EQ(cluster.cores_per_rank(0), 1.0);
  EXPECT_TRUE(cluster.parted_machines().empty());
  for (RankPlace& place : cluster.ranks) place.machine = place.node == 2 ? 2 : 0;
  EXPECT_DOUBLE_EQ(cluster.cores_per_rank(0), 0.5);
  EXPECT_DOUBLE_EQ(cluster.cores_per_rank(5), 1.0);
  EXPECT_EQ(cluster.parted_machines(), (std::vector<std::vector<int>>{{0, 1, 2, 3}}));
}

TEST(ClusterTest, NamesTheRanksThatShareAGpu) {
  Cluster cluster = invent_cluster(2, 2, block_order(4));
  cluster.ranks[2].gpu = 0;
  cluster.ranks[0].gpu = 0;  // another node: another GPU
  EXPECT_FALSE(cluster.shares_gpus());
  cluster.ranks[3].gpu = 0;
  for (RankPlace& place : cluster.ranks) place.first_rank = place.rank + 4;  // its name for the user
  EXPECT_TRUE(cluster.shares_gpus());
  EXPECT_EQ(cluster.shared_gpus(), std::vector<std::string>{"ranks 6, 7 share GPU 0 of node1"});
}

TEST(ClusterTest, SlicesOfOneCardAreOneGpu) {
  Cluster cluster = invent_cluster(1, 3, block_order(3));
  for (RankPlace& place : cluster.ranks) {
    place.first_rank = place.rank;
    place.gpu = place.rank;
    place.device_uuid = "MIG-" + std::to_string(place.rank);
    place.device_bus = place.rank < 2 ? "0000:3b:00.0" : "0000:86:00.0";
  }
  EXPECT_EQ(cluster.shared_gpus(), std::vector<std::string>{"ranks 0, 1 share GPU 0 of node0"});
}

TEST(ClusterTest, RefusesGapsAndWrongOrder) {
  Cluster gap = invent_cluster(2, 2, block_order(4));
  gap.ranks[2].node = gap.ranks[3].node = 2;
  EXPECT_THROW(gap.validate(), Error);
  Cluster swapped = invent_cluster(2, 2, block_order(4));
  swapped.ranks[0].rank = 1;
  EXPECT_THROW(swapped.validate(), Error);
  Cluster twice = invent_cluster(2, 2, block_order(4));
  twice.ranks[1].local_rank = 0;
  EXPECT_THROW(twice.validate(), Error);
}

}  // namespace
}  // namespace dtrain::topology
