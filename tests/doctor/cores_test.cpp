#include "doctor/cores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

/// Each rank of `nodes` x `ranks_per_node` with `cores_per_rank` cores of its own.
topology::Cluster cluster_of(int nodes, int ranks_per_node, int cores_per_rank) {
  auto cluster = topology::uniform_cluster(nodes, ranks_per_node);
  for (auto& place : cluster.ranks) {
    place.cpus.clear();
    for (int i = 0; i < cores_per_rank; ++i) place.cpus.push_back(place.local_rank * cores_per_rank + i);
  }
  return cluster;
}

std::vector<Finding> judge(const topology::Cluster& cluster, const ThreadRequest& request,
                           int launcher_cores = 0) {
  return judge_cores(cluster, request, std::vector<int>(cluster.ranks.size(), launcher_cores));
}

auto is(Level level, const std::string& text, const std::string& remedy) {
  return AllOf(Field(&Finding::level, level), Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::remedy, HasSubstr(remedy)));
}

TEST(CoresTest, ReportsMoreThreadsThanTheMaskHasCores) {
  EXPECT_THAT(judge(cluster_of(1, 2, 1), {.threads = 4, .source = "--threads "}),
              ElementsAre(is(Level::problem, "--threads 4 but each rank may use 1 core",
                             "--map-by slot:PE=4 or srun --cpus-per-task=4, or say --threads 1")));
  auto uneven = cluster_of(2, 2, 4);
  uneven.ranks[3].cpus = {7};
  EXPECT_THAT(judge(uneven, {.threads = 2, .source = "--threads "}),
              ElementsAre(is(Level::problem, "--threads 2 but rank 3 may use 1 core", "--threads 1")));
}

TEST(CoresTest, ReportsRanksThatAreBoundToOneCore) {
  auto cluster = cluster_of(2, 2, 1);
  cluster.ranks[3].cpus = cluster.ranks[2].cpus;
  EXPECT_THAT(
      judge(cluster, {}),
      ElementsAre(is(Level::problem, "ranks 2, 3 are all bound to core 0 of node1", "--bind-to none")));
}

TEST(CoresTest, ReportsThreadsThatShareTheCoresOfANode) {
  auto cluster = cluster_of(2, 4, 1);
  for (auto& place : cluster.ranks) place.cpus = {0, 1, 2, 3};
  EXPECT_THAT(judge(cluster, {.threads = 2, .source = "--threads "}),
              ElementsAre(is(Level::problem, "4 ranks of 2 threads share 4 cores", "--threads 1")));
}

TEST(CoresTest, NotesMoreRanksThanCoresAndWhereThatIs) {
  auto cluster = cluster_of(2, 4, 1);
  for (auto& place : cluster.ranks) {
    if (place.node == 1) place.cpus = {0, 1};
  }
  EXPECT_THAT(judge(cluster, {}),
              ElementsAre(is(Level::note, "node1: 4 ranks share 2 cores", "one rank per core")));
}

TEST(CoresTest, NotesThatMpirunHasBoundARankToOneCore) {
  EXPECT_THAT(judge(cluster_of(1, 2, 1), {}, 16),
              ElementsAre(is(Level::note, "each rank is bound to one core: 14 of 16 idle", "slot:PE=8")));
  EXPECT_THAT(judge(cluster_of(1, 2, 1), {}, 2), ElementsAre(is(Level::good, "1 for each rank", "")));
}

TEST(CoresTest, NotesThatNoCoreIsLeftToTheLoader) {
  EXPECT_THAT(judge(cluster_of(1, 2, 4), {.threads = 4, .source = "--threads "}),
              ElementsAre(is(Level::note, "--threads 4 leaves no core to the loader", "--threads 3")));
}

TEST(CoresTest, IsContentWithEnough) {
  EXPECT_THAT(judge(cluster_of(2, 2, 4), {.threads = 3, .source = "--threads "}),
              ElementsAre(is(Level::good, "4 for each rank, compute threads: 3", "")));
  EXPECT_THAT(judge(cluster_of(2, 2, 4), {}),
              ElementsAre(is(Level::good, "4 for each rank, compute threads: 4", "")));
}

}  // namespace
}  // namespace dtrain::doctor
