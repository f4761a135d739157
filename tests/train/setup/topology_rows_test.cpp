#include "train/setup/topology_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::train {
namespace {

topology::Cluster ranks_on(const std::vector<std::string>& hosts) {
  topology::Cluster cluster;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const auto& host = hosts[static_cast<std::size_t>(rank)];
    cluster.ranks.push_back({.rank = rank, .first_rank = rank, .hostname = host});
  }
  return cluster;
}

std::vector<record::TopologyRow> rows_after(std::vector<record::TopologyRow> earlier,
                                            const std::vector<std::string>& hosts, double now_s) {
  const auto cluster = ranks_on(hosts);
  const topology::Mesh mesh(cluster, {.data = static_cast<int>(hosts.size())});
  return topology_rows(std::move(earlier), cluster, mesh, now_s);
}

TEST(TopologyRowsTest, AResumedRunKeepsWhereItsRanksWere) {
  const auto first = rows_after({}, {"n0", "n1", "n2"}, 0);
  const auto both = rows_after(first, {"n5", "n6"}, 30);
  ASSERT_EQ(both.size(), 5U);
  EXPECT_EQ(both[1].hostname.view(), "n1");
  EXPECT_EQ(both[1].generation, 0);
  EXPECT_TRUE(std::isnan(both[1].left_at_s));
  EXPECT_EQ(both[2].left_at_s, 30) << "the second part has no rank 2";
  EXPECT_EQ(both[4].hostname.view(), "n6");
  EXPECT_EQ(both[4].generation, 1);
}

TEST(TopologyRowsTest, ARunThatIsResumedWhereItWasHasNoNewRows) {
  auto rows = rows_after({}, {"n0", "n1"}, 0);
  for (const double now_s : {10.0, 20.0}) rows = rows_after(rows, {"n0", "n1"}, now_s);
  EXPECT_EQ(rows.size(), 2U);
  rows = rows_after(rows, {"n0", "n2"}, 30);
  rows = rows_after(rows, {"n0", "n2"}, 40);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows.back().generation, 1);
}

TEST(TopologyRowsTest, SurvivorsOfALossAreANewGeneration) {
  auto rows = rows_after({}, {"n0", "n1"}, 0);
  rows[1].left_at_s = 5;
  EXPECT_EQ(rows_after(rows, {"n0"}, 6).size(), 3U);
}

}  // namespace
}  // namespace dtrain::train
