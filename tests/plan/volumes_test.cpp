#include "plan/volumes.hpp"

#include <gtest/gtest.h>

#include <string>

#include "models/slicing/tensor_group.hpp"
#include "plan/planned_model.hpp"

namespace dtrain::plan {
namespace {

const std::vector<models::Shape> kInputs = {{10, 12}};  // a step's samples

/// Bytes along one axis; -1 where that is not listed.
double along(topology::Axis axis, const std::vector<Volume>& volumes) {
  for (const auto& volume : volumes) {
    if (volume.axis == axis) return volume.bytes;
  }
  return -1;
}

TEST(VolumesTest, OneRankSendsNothing) {
  EXPECT_TRUE(step_volumes({}, *planned_model(), one_stage(), 4, kInputs).empty());
}

TEST(VolumesTest, CopiesSendTheirGradients) {
  const auto volumes = step_volumes({.data = 3}, *planned_model(), one_stage(), 4, kInputs);
  ASSERT_EQ(volumes.size(), 1);
  EXPECT_EQ(along(topology::Axis::data, volumes), 2 * 371 * 4);
  const auto in_double = step_volumes({.data = 3}, *planned_model(), one_stage(), 8, kInputs);
  EXPECT_EQ(along(topology::Axis::data, in_double), 2 * 371 * 8);
}

TEST(VolumesTest, FrozenParametersHaveNoGradientsToSend) {
  auto model = planned_model();
  model->freeze([](const std::string& name) { return name.starts_with("input_fc"); });
  const auto volumes = step_volumes({.data = 2}, *model, one_stage(), 4, kInputs);
  EXPECT_EQ(along(topology::Axis::data, volumes), (371 - 208) * 4);
}

TEST(VolumesTest, StagesSendActivationsAndTheirGradients) {
  const auto volumes = step_volumes({.data = 1, .pipe = 2}, *planned_model(), two_stages(), 4, kInputs);
  ASSERT_EQ(volumes.size(), 1);
  EXPECT_EQ(along(topology::Axis::pipe, volumes), 2 * 10 * 16 * 4);
}

TEST(VolumesTest, InterleavedStagesCrossMoreOften) {
  const parallel::StageCuts cuts{.ranks = 2, .layers = {{0, 2}, {2, 3}, {3, 5}, {5, 6}}};
  const auto volumes = step_volumes({.data = 1, .pipe = 2}, *planned_model(), cuts, 4, kInputs);
  EXPECT_EQ(along(topology::Axis::pipe, volumes), 2 * 10 * (16 + 16 + 8) * 4);
}

TEST(VolumesTest, SlicesSendTheirSumsAndCountTheirOwnGradientsOnce) {
  auto model = planned_model();
  models::RankAlone first_of_two(0, 2);
  model->slice(first_of_two);
  const auto volumes = step_volumes({.data = 2, .tensor = 2}, *model, one_stage(), 4, kInputs);
  ASSERT_EQ(volumes.size(), 2);
  // input_fc and the weight of hidden_fc are sliced; both ranks have its bias, and output_fc.
  EXPECT_EQ(along(topology::Axis::data, volumes), (208 + 8 * 16 + 2 * (8 + 27)) * 4);
  // hidden_fc's outputs are summed in forward. The model's own inputs need no gradient.
  EXPECT_EQ(along(topology::Axis::tensor, volumes), 2 * 10 * 8 * 4);
}

}  // namespace
}  // namespace dtrain::plan
