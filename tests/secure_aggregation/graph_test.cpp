#include "secure_aggregation/graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

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
    const bool complete = neighbours + 1 >= clients;
    EXPECT_EQ(graph.cut(graph.clients()), complete ? std::numeric_limits<int>::max() : neighbours);
  }
}

TEST(GraphTest, TheSeedDecidesTheOrder) {
  const auto clients = every_third(50);
  const Graph one(clients, 10, seed_of(1));
  EXPECT_EQ(one.neighbours(1), Graph(clients, 10, seed_of(1)).neighbours(1));
  EXPECT_NE(one.neighbours(1), Graph(clients, 10, seed_of(2)).neighbours(1));
}

/// Whether one can get from each of `among` to each other through neighbours of these.
bool connected(const Graph& graph, const std::vector<int>& among) {
  if (among.empty()) return true;
  std::set<int> left(among.begin() + 1, among.end());
  std::vector<int> reached = {among.front()};
  for (std::size_t next = 0; next < reached.size(); ++next) {
    for (const int client : graph.neighbours(reached[next])) {
      if (left.erase(client) == 1) reached.push_back(client);
    }
  }
  return left.empty();
}

TEST(GraphTest, TheCutIsTheFewestClientsWithoutWhichTheOthersMayFallApart) {
  std::uint64_t state = 5;
  const auto below = [&](std::uint64_t bound) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % bound;
  };
  int apart = 0;
  int equal = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int count = 6 + static_cast<int>(below(7));
    const Graph graph(every_third(count), 2 + 2 * static_cast<int>(below(2)), seed_of(trial));
    auto among = graph.clients();
    for (auto losses = below(5); losses > 0; --losses) {
      among.erase(among.begin() + static_cast<std::ptrdiff_t>(below(among.size())));
    }
    // Each set of some of them, taken away.
    int fewest = std::numeric_limits<int>::max();
    for (unsigned gone = 0; gone < 1U << among.size(); ++gone) {
      std::vector<int> left;
      for (std::size_t i = 0; i < among.size(); ++i) {
        if ((gone >> i & 1U) == 0) left.push_back(among[i]);
      }
      if (!connected(graph, left)) fewest = std::min(fewest, static_cast<int>(among.size() - left.size()));
    }
    const int cut = graph.cut(among);
    EXPECT_LE(cut, fewest) << trial;
    if (cut == 0) apart += static_cast<int>(fewest == 0);
    equal += static_cast<int>(cut == fewest);
  }
  EXPECT_GT(apart, 10);
  EXPECT_GT(equal, 200);  // less than needed only where nothing is left between the two stretches
}

TEST(GraphTest, UpToThirtyClientsAllAreNeighboursAndAboveAsManyAsLossesNeed) {
  EXPECT_EQ(plan_graph(30, 16).neighbours, 29);
  EXPECT_EQ(plan_graph(30, 16).share_threshold, 16);
  EXPECT_EQ(plan_graph(30, 16).least_cut, 0);
  EXPECT_EQ(plan_graph(31, 20).least_cut, 4);  // more than a tenth of the clients
  EXPECT_LT(plan_graph(10000, 8000).least_cut, 60);
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
    EXPECT_GE(graph.cut(left), plan.least_cut);
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
