#include "secure_aggregation/graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

std::vector<int> every_third(int count) {
  std::vector<int> clients;
  for (int i = 0; i < count; ++i) clients.push_back(3 * i + 1);
  return clients;
}

Digest seed_of(int number) {
  Digest seed = {};
  seed[0] = static_cast<std::byte>(number);
  return seed;
}

TEST(GraphTest, EachClientHasAsManyNeighboursAndTheyHaveIt) {
  for (const auto& [clients, neighbours] :
       {std::pair{3, 2}, {5, 4}, {7, 4}, {40, 12}, {41, 40}, {60, 8}, {9, 50}}) {
    const Graph graph(every_third(clients), neighbours, seed_of(clients));
    for (const int client : graph.clients()) {
      const auto& own = graph.neighbours(client);
      EXPECT_EQ(static_cast<int>(own.size()), std::min(neighbours, clients - 1));
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
      EXPECT_EQ(std::adjacent_find(own.begin(), own.end()), own.end());
      for (const int other : own) {
        EXPECT_NE(other, client);
        EXPECT_TRUE(
            std::binary_search(graph.neighbours(other).begin(), graph.neighbours(other).end(), client));
      }
      EXPECT_EQ(graph.holders(client).size(), own.size() + 1);
    }
    EXPECT_TRUE(graph.connects(graph.clients()));
  }
}

TEST(GraphTest, TheSeedDecidesTheOrder) {
  const auto clients = every_third(50);
  const Graph one(clients, 10, seed_of(1));
  EXPECT_EQ(one.neighbours(1), Graph(clients, 10, seed_of(1)).neighbours(1));
  EXPECT_NE(one.neighbours(1), Graph(clients, 10, seed_of(2)).neighbours(1));
}

TEST(GraphTest, GroupsWithoutCommonNeighboursAreFound) {
  const Graph ring(every_third(8), 2, seed_of(1));
  // Client by client around the ring.
  std::vector<int> around = {1, ring.neighbours(1)[0]};
  while (around.size() < 8) {
    const auto& next = ring.neighbours(around.back());
    around.push_back(next[0] == around[around.size() - 2] ? next[1] : next[0]);
  }
  const auto some = [&](std::initializer_list<int> places) {
    std::vector<int> clients;
    for (const int place : places) clients.push_back(around[static_cast<std::size_t>(place)]);
    std::sort(clients.begin(), clients.end());
    return ring.connects(clients);
  };
  EXPECT_TRUE(some({2, 3, 4, 5}));
  EXPECT_TRUE(some({7, 0, 1}));
  EXPECT_FALSE(some({0, 1, 3, 4}));
  EXPECT_FALSE(some({0, 1, 2, 3, 4, 6}));
}

TEST(GraphTest, UpToThirtyClientsAllAreNeighboursAndAboveAsManyAsLossesNeed) {
  EXPECT_EQ(plan_graph(30, 16).neighbours, 29);
  EXPECT_EQ(plan_graph(30, 16).share_threshold, 16);
  int before = 0;
  for (const int survivors : {100, 90, 80, 70}) {
    const auto plan = plan_graph(100, survivors);
    EXPECT_GE(plan.neighbours, before) << survivors;
    EXPECT_LT(plan.neighbours, 80) << survivors;
    EXPECT_EQ(plan.neighbours % 2, 0);
    EXPECT_GT(2 * plan.share_threshold, plan.neighbours + 1);
    before = plan.neighbours;
  }
  EXPECT_EQ(plan_graph(100, 51).neighbours, 99);  // nearly half may go: all shares are needed
  EXPECT_LT(plan_graph(1000, 700).neighbours, 180);
  EXPECT_LT(plan_graph(100000, 90000).neighbours, 100);
  EXPECT_THROW(plan_graph(1000, 501), Error);
}

TEST(GraphTest, ThePlanHoldsForLossesDrawnByChance) {
  const auto plan = plan_graph(60, 45);
  std::vector<int> all(60);
  std::iota(all.begin(), all.end(), 0);
  std::uint64_t state = 1;
  for (int trial = 0; trial < 200; ++trial) {
    const Graph graph(all, plan.neighbours, seed_of(trial));
    auto left = all;
    while (left.size() > 45) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>((state >> 33) % left.size()));
    }
    EXPECT_TRUE(graph.connects(left));
    for (const int client : all) {
      std::vector<int> there;
      const auto holders = graph.holders(client);
      std::set_intersection(holders.begin(), holders.end(), left.begin(), left.end(),
                            std::back_inserter(there));
      EXPECT_GE(static_cast<int>(there.size()), plan.share_threshold);
    }
  }
}

}  // namespace
}  // namespace dtrain::secure_aggregation
