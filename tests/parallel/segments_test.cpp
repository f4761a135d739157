#include "parallel/segments.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/flat_parameters.hpp"
#include "small_model.hpp"

namespace dtrain::parallel {
namespace {

std::vector<at::Tensor> gradients_with(std::vector<std::size_t> cuts) {
  auto model = small_model();
  const FlatParameters parameters(*model, at::kDouble);
  SegmentWalk walk(*model, std::move(cuts));
  const auto batch = small_batch(10);
  walk.backward(model->loss(walk.forward({batch.inputs}, {}), batch.targets).loss);
  std::vector<at::Tensor> gradients;
  for (const auto* parameter : model->parameters()) gradients.push_back(parameter->value.grad());
  return gradients;
}

TEST(SegmentWalkTest, GradientsDoNotDependOnWhereTheGraphIsCut) {
  const auto whole = gradients_with({});
  auto model = small_model();
  std::vector<std::size_t> everywhere;
  for (std::size_t i = 1; i < model->layers().size(); ++i) everywhere.push_back(i);
  for (const auto& cuts : {std::vector<std::size_t>{1}, std::vector<std::size_t>{2}, everywhere}) {
    const auto cut = gradients_with(cuts);
    ASSERT_EQ(cut.size(), whole.size());
    for (std::size_t i = 0; i < cut.size(); ++i) {
      ASSERT_TRUE(cut[i].defined());
      EXPECT_TRUE(at::equal(cut[i], whole[i])) << "parameter " << i;
    }
  }
}

TEST(SegmentWalkTest, ACutOutsideTheModelIsRefused) {
  auto model = small_model();
  EXPECT_THROW(SegmentWalk(*model, {model->layers().size()}), Error);
  EXPECT_THROW(SegmentWalk(*model, {2, 1}), Error);
}

}  // namespace
}  // namespace dtrain::parallel
