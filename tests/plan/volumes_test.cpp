#include "plan/volumes.hpp"

#include <gtest/gtest.h>

#include <string>

#include "models/slicing/tensor_group.hpp"
#include "plan/planned_model.hpp"

namespace dtrain::plan {
namespace {

const std::vector<models::Shape> kInputs = {{10, 12}};  // a step's samples

/// Of planned_model(), or one made of it, on so many nodes.
std::vector<Volume> volumes_on(int nodes, const topology::MeshShape& shape, const Footprint& footprint = {},
                               const parallel::StageCuts& cuts = one_stage(),
                               const models::Model& model = *planned_model()) {
  const auto cluster = topology::uniform_cluster(nodes, shape.size() / nodes);
  return step_volumes(cluster, topology::Mesh(cluster, shape), model, cuts, footprint, kInputs);
}

/// Of one axis; -1 bytes where that is not listed.
Volume along(topology::Axis axis, const std::vector<Volume>& volumes) {
  for (const auto& volume : volumes) {
    if (volume.axis == axis) return volume;
  }
  return {.bytes = -1};
}

TEST(VolumesTest, OneRankSendsNothing) { EXPECT_TRUE(volumes_on(1, {}).empty()); }

TEST(VolumesTest, CopiesSendTheirGradientsOnceWhereTheyShareTheParameters) {
  const auto volumes = volumes_on(1, {.data = 3}, {.block_ranks = 3});
  ASSERT_EQ(volumes.size(), 1);
  EXPECT_EQ(along(topology::Axis::data, volumes).bytes, 2 * 371 * 4);
  const auto in_double = volumes_on(1, {.data = 3}, {.element_bytes = 8, .block_ranks = 3});
  EXPECT_EQ(along(topology::Axis::data, in_double).bytes, 2 * 371 * 8);
  EXPECT_EQ(along(topology::Axis::data, in_double).bytes_between_nodes, 0);
}

TEST(VolumesTest, CopiesThatShareNothingGetTheSumsToo) {
  EXPECT_EQ(along(topology::Axis::data, volumes_on(1, {.data = 3})).bytes, 2 * 2 * 371 * 4);
}

TEST(VolumesTest, BetweenNodesGradientsPassForEachNodeAndNotForEachRank) {
  const auto two = along(topology::Axis::data, volumes_on(2, {.data = 16}));
  EXPECT_EQ(two.bytes_between_nodes, 2 * 371 * 4)
      << "each node sends half of the sums, and then of the result";
  EXPECT_EQ(two.bytes, 2 * (16 - 1) * 371 * 4);
  const auto four = along(topology::Axis::data, volumes_on(4, {.data = 4}));
  EXPECT_EQ(four.bytes_between_nodes, 2 * 3 * 371 * 4) << "a ring: 3/4 of them from each rank, twice";
  EXPECT_EQ(four.bytes, four.bytes_between_nodes);
}

TEST(VolumesTest, FrozenParametersHaveNoGradientsToSend) {
  auto model = planned_model();
  model->freeze([](const std::string& name) { return name.starts_with("input_fc"); });
  const auto volumes = volumes_on(1, {.data = 2}, {.block_ranks = 2}, one_stage(), *model);
  EXPECT_EQ(along(topology::Axis::data, volumes).bytes, (371 - 208) * 4);
}

TEST(VolumesTest, StagesSendActivationsAndTheirGradients) {
  const auto volumes = volumes_on(1, {.pipe = 2}, {}, two_stages());
  ASSERT_EQ(volumes.size(), 1);
  EXPECT_EQ(along(topology::Axis::pipe, volumes).bytes, 2 * 10 * 16 * 4);
  EXPECT_EQ(along(topology::Axis::pipe, volumes).bytes_between_nodes, 0);
}

TEST(VolumesTest, InterleavedStagesCrossMoreOften) {
  const parallel::StageCuts cuts{.ranks = 2, .layers = {{0, 2}, {2, 3}, {3, 5}, {5, 6}}};
  EXPECT_EQ(along(topology::Axis::pipe, volumes_on(1, {.pipe = 2}, {}, cuts)).bytes,
            2 * 10 * (16 + 16 + 8) * 4);
}

TEST(VolumesTest, OfAPipelineOnlyTheStagesOnTwoNodesSendBetweenThem) {
  const parallel::StageCuts cuts{.ranks = 4, .layers = {{0, 2}, {2, 3}, {3, 5}, {5, 6}}};
  const auto volume = along(topology::Axis::pipe, volumes_on(2, {.pipe = 4}, {}, cuts));
  EXPECT_EQ(volume.bytes, 2 * 10 * (16 + 16 + 8) * 4);
  EXPECT_EQ(volume.bytes_between_nodes, 2 * 10 * 16 * 4) << "the second and the third";
}

TEST(VolumesTest, SlicesSendTheirSumsAndCountTheirOwnGradientsOnce) {
  auto model = planned_model();
  models::RankAlone first_of_two(0, 2);
  model->slice(first_of_two);
  const auto volumes = volumes_on(1, {.data = 2, .tensor = 2}, {.block_ranks = 2}, one_stage(), *model);
  ASSERT_EQ(volumes.size(), 2);
  // input_fc and the weight of hidden_fc are sliced; both ranks have its bias, and output_fc.
  EXPECT_EQ(along(topology::Axis::data, volumes).bytes, (208 + 8 * 16 + 2 * (8 + 27)) * 4);
  // hidden_fc's outputs are summed in forward. The model's own inputs need no gradient.
  EXPECT_EQ(along(topology::Axis::tensor, volumes).bytes, 2 * 10 * 8 * 4);
  const auto apart = volumes_on(2, {.data = 2, .tensor = 2}, {}, one_stage(), *model);
  EXPECT_EQ(along(topology::Axis::tensor, apart).bytes_between_nodes, 0);
  EXPECT_EQ(along(topology::Axis::data, apart).bytes_between_nodes,
            2 * along(topology::Axis::data, volumes).bytes);
}

}  // namespace
}  // namespace dtrain::plan
