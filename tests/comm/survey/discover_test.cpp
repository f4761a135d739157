#include "comm/survey/discover.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

TEST(DiscoverTest, PutsTheRanksOfOneMachineOnOneNode) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const topology::Cluster cluster = discover_cluster(world, {world.rank(), world.rank() + 1});
  EXPECT_EQ(cluster.world_size(), world.size());
  EXPECT_EQ(cluster.node_count(), 1);
  for (int rank = 0; rank < cluster.world_size(); ++rank) {
    const topology::RankPlace& place = cluster.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(place.rank, rank);
    EXPECT_EQ(place.local_rank, rank);
    EXPECT_FALSE(place.hostname.empty());
    EXPECT_EQ(place.cpus, (std::vector<int>{rank, rank + 1}));
    EXPECT_TRUE(place.device_uuid.empty());
  }
}

TEST(DiscoverTest, TellsWhichRanksShareAGpu) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = discover_cluster(world, {0}, {.gpu = 0, .uuid = "GPU-1"});
  EXPECT_EQ(cluster.ranks[0].device_uuid, "GPU-1");
  EXPECT_EQ(cluster.shares_gpus(), world.size() > 1);
}

TEST(DiscoverTest, TellsWhichRanksShareACard) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto slice = "MIG-" + std::to_string(world.rank());
  for (const std::string card : {"0000:3b:00.0", ""}) {
    const auto cluster = discover_cluster(world, {0}, {.gpu = world.rank(), .uuid = slice, .bus = card});
    EXPECT_EQ(cluster.ranks[0].device_uuid, "MIG-0");
    EXPECT_EQ(cluster.ranks[0].device_bus, card);
    EXPECT_EQ(cluster.shares_gpus(), world.size() > 1 && !card.empty());
  }
}

TEST(DiscoverTest, ReadsTheMaskThatTheSystemEnforces) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const std::vector<int> all = affinity_mask();
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(affinity_mask(), std::vector<int>{all.back()});
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(DiscoverTest, RefusesASlurmJobThatFellApart) {
  EXPECT_NO_THROW(check_launch(4, 4));
  EXPECT_NO_THROW(check_launch(2, 4));  // mpirun -np 2 within a larger allocation
  EXPECT_NO_THROW(check_launch(1, std::nullopt));
  EXPECT_NO_THROW(check_launch(1, 1));
  try {
    check_launch(1, 4);
    ADD_FAILURE() << "four jobs of one rank went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("--mpi=pmix"));
  }
}

}  // namespace
}  // namespace dtrain::comm
