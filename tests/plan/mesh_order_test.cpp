#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/mesh_plan.hpp"

namespace dtrain::plan {
namespace {

using ::testing::ElementsAre;

constexpr double kGiB = 1 << 30;

MeshPlan mesh(int data, int pipe, double gib, double in_node, double between_nodes, double idle) {
  return {.mesh = {.data = data, .pipe = pipe},
          .memory_bytes = gib * kGiB,
          .bytes_in_node = in_node,
          .bytes_between_nodes = between_nodes,
          .idle_share = idle};
}

std::vector<int> pipes_in_order(std::vector<MeshPlan> plans, double limit_gib) {
  put_best_first(plans, limit_gib * kGiB);
  std::vector<int> pipes;
  for (const auto& plan : plans) pipes.push_back(plan.mesh.pipe);
  return pipes;
}

// Least memory has most idle time, as pipelines have.
const std::vector<MeshPlan> kPlans = {mesh(8, 1, 8, 40, 0, 0), mesh(4, 2, 5, 30, 0, 0.1),
                                      mesh(2, 4, 3, 20, 0, 0.2), mesh(1, 8, 2, 10, 0, 0.3)};

TEST(MeshOrderTest, MemoryCountsWhereItIsScarceOrNotKnown) {
  EXPECT_THAT(pipes_in_order(kPlans, 0), ElementsAre(8, 4, 2, 1));
  EXPECT_THAT(pipes_in_order(kPlans, 8), ElementsAre(8, 4, 2, 1));  // 5 GiB leave room, 8 do not
}

TEST(MeshOrderTest, MemoryDoesNotCountWhereThereIsPlenty) {
  // Bytes and idle time disagree from end to end: the bytes decide.
  EXPECT_THAT(pipes_in_order(kPlans, 80), ElementsAre(8, 4, 2, 1));
  auto plans = kPlans;
  for (auto& plan : plans) plan.bytes_in_node = 10;
  EXPECT_THAT(pipes_in_order(plans, 80), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(pipes_in_order(plans, 0), ElementsAre(1, 2, 4, 8));  // equal sums keep their order
}

TEST(MeshOrderTest, BytesBetweenNodesCountTenTimes) {
  EXPECT_THAT(pipes_in_order({mesh(2, 1, 1, 0, 10, 0), mesh(1, 2, 1, 99, 0, 0)}, 80), ElementsAre(2, 1));
  EXPECT_THAT(pipes_in_order({mesh(2, 1, 1, 0, 10, 0), mesh(1, 2, 1, 101, 0, 0)}, 80), ElementsAre(1, 2));
}

TEST(MeshOrderTest, AFifthIsLeftFree) {
  EXPECT_TRUE(leaves_room(79, 100));
  EXPECT_FALSE(leaves_room(81, 100));
  EXPECT_FALSE(leaves_room(1, 0));
}

}  // namespace
}  // namespace dtrain::plan
