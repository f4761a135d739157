#include "doctor/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::doctor {
namespace {

using testing::HasSubstr;

Finding only(const std::vector<Finding>& findings) {
  EXPECT_EQ(findings.size(), 1U);
  return findings.empty() ? Finding{} : findings.front();
}

void expect(const Finding& finding, Level level, const std::string& text, const std::string& remedy) {
  EXPECT_EQ(finding.level, level) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(LaunchTest, ReportsAJobThatFellApart) {
  const LaunchFacts srun{.world_size = 1, .nodes = 1, .launcher = "srun", .announced = 4, .slurm_tasks = 4};
  expect(only(judge_launch(srun)), Level::problem, "Slurm started 4 tasks but MPI sees 4 jobs of one rank",
         "srun --mpi=pmix");
  const LaunchFacts mpirun{.world_size = 1, .nodes = 1, .launcher = "mpirun", .announced = 4};
  expect(only(judge_launch(mpirun)), Level::problem, "mpirun started 4 tasks but MPI sees 4 jobs of one rank",
         "jobs/env.sh");
}

TEST(LaunchTest, ReportsAnotherNumberOfRanksThanWasAnnounced) {
  expect(only(judge_launch({.world_size = 3, .nodes = 1, .launcher = "srun", .announced = 4})),
         Level::problem, "srun started 4 tasks but MPI sees 3 ranks", "--mpi=pmix");
}

TEST(LaunchTest, ReportsNodesOutsideTheAllocation) {
  expect(only(judge_launch({.world_size = 4,
                            .nodes = 4,
                            .launcher = "mpirun",
                            .announced = 4,
                            .slurm_tasks = 4,
                            .slurm_nodes = 2})),
         Level::problem, "on 4 nodes but the Slurm job has 2", "leave --host and --hostfile out");
}

TEST(LaunchTest, ReportsAllRanksOnOneNodeOfSeveral) {
  const LaunchFacts facts{
      .world_size = 4, .nodes = 1, .launcher = "mpirun", .announced = 4, .slurm_tasks = 4, .slurm_nodes = 2};
  expect(only(judge_launch(facts)), Level::problem, "all 4 ranks are on 1 of the job's 2 nodes",
         "ppr:N:node");
}

TEST(LaunchTest, OnlyNotesFewerRanksThanTasks) {
  const LaunchFacts facts{
      .world_size = 2, .nodes = 1, .launcher = "mpirun", .announced = 2, .slurm_tasks = 4, .slurm_nodes = 2};
  expect(only(judge_launch(facts)), Level::note, "2 ranks in a Slurm job of 4 tasks", "leave -np out");
  const LaunchFacts unknown{
      .world_size = 4, .nodes = 1, .launcher = "mpirun", .announced = 4, .slurm_nodes = 2};
  expect(only(judge_launch(unknown)), Level::note, "the ranks are on 1 of the job's 2 nodes", "ppr:N:node");
  expect(only(judge_launch({.slurm_tasks = 4, .slurm_nodes = 2})), Level::note, "started by hand",
         "srun --mpi=pmix or mpirun");
}

TEST(LaunchTest, IsContentWithWhatFits) {
  expect(only(judge_launch({})), Level::good, "1 rank on 1 node, started by hand", "");
  expect(only(judge_launch({.world_size = 8, .nodes = 2, .launcher = "mpirun", .announced = 8})), Level::good,
         "8 ranks on 2 nodes, started by mpirun", "");
  const LaunchFacts step{
      .world_size = 2, .nodes = 1, .launcher = "srun", .announced = 2, .slurm_tasks = 4, .slurm_nodes = 2};
  expect(only(judge_launch(step)), Level::good, "2 ranks on 1 node, started by srun", "");
}

TEST(LaunchTest, ReportsAVariableOfAnotherSlurmJob) {
  EXPECT_TRUE(judge_slurm_job("12", "12").empty());
  expect(only(judge_slurm_job("11", "12")), Level::problem, "SLURM_JOB_ID is 11 but 12 on rank 0", "unset");
  expect(only(judge_slurm_job("", "12")), Level::problem, "is none", "unset");
}

TEST(LaunchTest, NamesRanksAndNodesOfAnotherBuild) {
  const auto cluster = topology::uniform_cluster(2, 2);
  expect(only(judge_builds({"aa", "aa", "bb", "aa"}, cluster)), Level::problem,
         "rank 2 (node1) is another build of dtrain than rank 0 (node0)", "same program on all nodes");
  expect(only(judge_builds({"aa", "aa", "bb", "bb"}, cluster)), Level::problem, "ranks 2, 3 (node1) are", "");
  expect(only(judge_builds({"aa", "aa", "aa", "aa"}, cluster)), Level::good, "on all ranks", "");
}

}  // namespace
}  // namespace dtrain::doctor
