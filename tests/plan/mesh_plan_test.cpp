#include "plan/mesh_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/planned_model.hpp"

namespace dtrain::plan {
namespace {

/// planned_model() on two nodes of one rank; each of a step's 8 samples is a micro-batch.
MeshPlan planned(const std::string& mesh_text, const parallel::StageCuts& cuts, double limit_bytes = 0,
                 parallel::Pipelining pipelining = parallel::Pipelining::one_f_one_b) {
  const auto cluster = topology::uniform_cluster(2, 1);
  const topology::Mesh mesh(cluster, topology::MeshShape::parse(mesh_text, 2));
  const auto model = planned_model();
  const models::Shape sample = {12};
  const Footprint footprint{.copies = mesh.shape().data, .micro_batches = 8, .pipelining = pipelining};
  return plan_of({.cluster = cluster,
                  .mesh = mesh,
                  .model = *model,
                  .cuts = cuts,
                  .sample_shape = sample,
                  .footprint = footprint,
                  .global_batch = 8,
                  .limit_bytes = limit_bytes});
}

TEST(MeshPlanTest, GradientsOfCopiesOnTwoNodesPassBetweenThem) {
  const auto plan = planned("data=2", one_stage());
  EXPECT_EQ(plan.bytes_in_node, 0);
  // Each rank sends one half, and the sums of the other.
  EXPECT_EQ(plan.bytes_between_nodes, (208 + 136 + 27) * 4);
  EXPECT_EQ(plan.idle_share, 0);
}

TEST(MeshPlanTest, APipelineIsIdleInItsRampAndForItsSmallerStages) {
  const auto plan = planned("pipe=2", two_stages());
  const double ramp = 1.0 / 9;  // two stages, eight pieces
  EXPECT_GT(plan.idle_share, ramp);
  EXPECT_LT(plan.idle_share, 1);
  EXPECT_GT(plan.memory_bytes, 208 * 4);  // the first stage's parameters
  EXPECT_LT(plan.memory_bytes, planned("data=2", one_stage()).memory_bytes);
}

TEST(MeshPlanTest, LayersRunAgainOnlyUnderALimitThatAsksForIt) {
  const auto limited = [](double limit) {
    return planned("pipe=2", two_stages(), limit, parallel::Pipelining::gpipe);
  };
  const auto plain = limited(0);
  EXPECT_FALSE(plain.repeats_layers);
  EXPECT_FALSE(limited(plain.memory_bytes).repeats_layers);
  const auto repeats = limited(plain.memory_bytes - 1);
  EXPECT_TRUE(repeats.repeats_layers);
  EXPECT_LT(repeats.memory_bytes, plain.memory_bytes);
  EXPECT_EQ(limited(100).memory_bytes, repeats.memory_bytes) << "what fits nowhere counts at its least";
}

TEST(MeshPlanTest, WhatNoRepeatingMakesSmallerIsAsLargeAsItIs) {
  const auto plain = planned("data=2", one_stage());
  const auto hopeless = planned("data=2", one_stage(), plain.memory_bytes - 1);
  EXPECT_FALSE(hopeless.repeats_layers);
  EXPECT_EQ(hopeless.memory_bytes, plain.memory_bytes);
}

std::vector<int> order_of(std::vector<MeshPlan> plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) plans[i].mesh.data = static_cast<int>(i);
  put_best_first(plans, 0);
  std::vector<int> order;
  for (const auto& plan : plans) order.push_back(plan.mesh.data);
  return order;
}

TEST(BestFirstTest, ThePlacesInMemoryBytesAndIdleTimeAreAdded) {
  EXPECT_THAT(order_of({{.memory_bytes = 3, .bytes_in_node = 3, .idle_share = 0.3},
                        {.memory_bytes = 1, .bytes_in_node = 2, .idle_share = 0.2},
                        {.memory_bytes = 2, .bytes_in_node = 1, .idle_share = 0.1}}),
              ::testing::ElementsAre(2, 1, 0));
}

}  // namespace
}  // namespace dtrain::plan
