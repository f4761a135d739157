#include "comm/survey/link_speeds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

TEST(LinkSpeedsTest, TournamentLetsEachNodeMeetEachOtherOnce) {
  for (int nodes = 1; nodes <= 33; ++nodes) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < rounds_of(nodes); ++round) {
      std::set<int> busy;
      for (const auto& [low, high] : pairs_of_round(nodes, round)) {
        EXPECT_LT(low, high);
        EXPECT_LT(high, nodes);
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second) << "twice in a round";
        EXPECT_TRUE(met.emplace(low, high).second) << low << " meets " << high << " again";
      }
    }
    EXPECT_EQ(static_cast<int>(met.size()), nodes * (nodes - 1) / 2);
  }
  EXPECT_EQ(rounds_of(1000), 64);
}

TEST(LinkSpeedsTest, MeasuresBothDirectionsOfEachPairOfNodes) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const LinkTest test{.bytes = 1 << 16, .repeats = 1};
  const auto cluster = topology::uniform_cluster(world.size(), 1);
  const auto links = measure_link_speeds(world, cluster, test);
  EXPECT_EQ(static_cast<int>(links.size()), world.size() * (world.size() - 1));
  std::set<std::pair<int, int>> different;
  for (const auto& link : links) {
    EXPECT_GT(link.bytes_per_s, 0);
    different.emplace(link.from, link.to);
  }
  EXPECT_EQ(different.size(), links.size());
  const auto again = measure_again(world, cluster, links, test);
  EXPECT_EQ(again.size(), links.size());
}

TEST(LinkSpeedsTest, NamesTheNodesWhenNothingArrives) {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "needs a second rank";
  const auto cluster = topology::uniform_cluster(world.size(), 1);
  const LinkTest test{.bytes = 1 << 16, .repeats = 1, .limit_s = 0.2};
  if (world.rank() == 0) {
    try {
      measure_again(world, cluster, {{.from = 0, .to = 1, .bytes_per_s = 0}}, test);
      ADD_FAILURE() << "node 1 has not even looked";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("link node1 -> node0: a message"));
      EXPECT_THAT(error.advice(), testing::HasSubstr("network between them"));
    }
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  world.barrier();
}

}  // namespace
}  // namespace dtrain::comm
