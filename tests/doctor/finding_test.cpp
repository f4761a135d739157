#include "doctor/finding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::doctor {
namespace {

using testing::ElementsAre;
using testing::Field;

TEST(FindingTest, TravelsAsText) {
  const std::vector<Finding> findings = {good("MPI", "5.0.11"),
                                         problem("cores", "too few; of them", "get\nmore")};
  EXPECT_EQ(from_text(to_text(findings)), findings);
  EXPECT_TRUE(from_text(to_text({})).empty());
  EXPECT_THAT(problems_in(findings), ElementsAre(findings[1]));
}

TEST(FindingTest, IsSaidOnceWhereAllRanksHaveIt) {
  const auto cluster = topology::uniform_cluster(2, 2);
  const std::vector<std::vector<Finding>> alike(4, {good("MPI", "5.0.11")});
  const auto merged = merge(alike, cluster, Asked::ranks);
  ASSERT_EQ(merged.size(), 1U);
  EXPECT_EQ(merged[0].where, "");
}

TEST(FindingTest, NamesTheNodeAllOfWhoseRanksHaveIt) {
  const auto cluster = topology::uniform_cluster(2, 2);
  std::vector<std::vector<Finding>> findings(4, {good("MPI", "5.0.11")});
  findings[2] = findings[3] = {problem("MPI", "4.1.4", "take the other")};
  const auto merged = merge(findings, cluster, Asked::ranks);
  EXPECT_THAT(merged,
              ElementsAre(Field(&SharedFinding::where, "node0"), Field(&SharedFinding::where, "node1")));
}

TEST(FindingTest, NamesSingleRanksAndTheirNode) {
  const auto cluster = topology::uniform_cluster(2, 2);
  std::vector<std::vector<Finding>> findings(4);
  findings[1] = findings[3] = {problem("launch", "another job", "unset it")};
  EXPECT_EQ(merge(findings, cluster, Asked::ranks)[0].where, "ranks 1, 3 on node0, node1");
  findings[1].clear();
  EXPECT_EQ(merge(findings, cluster, Asked::ranks)[0].where, "rank 3 on node1");
}

TEST(FindingTest, NamesNoNodeWhereThereIsOne) {
  std::vector<std::vector<Finding>> findings(3);
  findings[1] = {problem("launch", "another job", "unset it")};
  EXPECT_EQ(merge(findings, topology::uniform_cluster(1, 3), Asked::ranks)[0].where, "rank 1");
}

TEST(FindingTest, TakesTheWordOfANodesFirstRank) {
  const auto cluster = topology::uniform_cluster(3, 2);
  std::vector<std::vector<Finding>> findings(6);
  findings[0] = findings[2] = findings[4] = {problem("shared memory", "none", "mount it")};
  EXPECT_EQ(merge(findings, cluster, Asked::nodes)[0].where, "");
  findings[2].clear();
  EXPECT_EQ(merge(findings, cluster, Asked::nodes)[0].where, "node0, node2");
}

}  // namespace
}  // namespace dtrain::doctor
