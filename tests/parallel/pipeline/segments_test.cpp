#include "parallel/pipeline/segments.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

std::vector<at::Tensor> gradients_of(models::Model& model) {
  std::vector<at::Tensor> gradients;
  for (const auto* parameter : model.parameters()) gradients.push_back(parameter->value.grad());
  return gradients;
}

std::vector<at::Tensor> gradients_with(Segments segments) {
  auto model = small_model();
  const FlatParameters parameters(*model, at::kDouble);
  const auto batch = small_batch(10);
  forward_and_back(*model, whole_walk(*model, std::move(segments)), batch.inputs, batch.targets);
  return gradients_of(*model);
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].defined());
    EXPECT_TRUE(at::equal(found[i], expected[i])) << "parameter " << i;
  }
}

std::vector<std::size_t> everywhere() {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < small_model()->layers().size(); ++i) cuts.push_back(i);
  return cuts;
}

TEST(SegmentWalkTest, GradientsDoNotDependOnWhereTheGraphIsCut) {
  const auto whole = gradients_with({});
  for (const auto& cuts : {std::vector<std::size_t>{1}, std::vector<std::size_t>{2}, everywhere()})
    expect_equal(gradients_with({.cuts = cuts}), whole);
}

TEST(SegmentWalkTest, GradientsDoNotDependOnWhatIsComputedAgain) {
  const auto whole = gradients_with({});
  const auto layers = static_cast<std::int64_t>(small_model()->layers().size());
  for (std::int64_t repeated = 0; repeated <= layers + 1; ++repeated)
    expect_equal(gradients_with(repeat_first({0, layers}, repeated)), whole);
  expect_equal(gradients_with({.cuts = everywhere(), .repeated = 2}), whole);
}

TEST(SegmentWalkTest, TwoStagesOneAfterTheOtherAreTheModelAndMicroBatchesMayOverlap) {
  auto model = small_model();
  const FlatParameters parameters(*model, at::kDouble);
  const auto layers = static_cast<std::int64_t>(model->layers().size());
  const SegmentWalk first(*model, {0, 2});
  const SegmentWalk second(*model, {2, layers});
  const auto batch = small_batch(10);
  std::vector<Passed> below;
  std::vector<Passed> above;
  for (int m = 0; m < 2; ++m) {
    below.push_back(first.forward({batch.inputs.narrow(0, 5 * m, 5)}, {}));
    above.push_back(second.forward(below.back().outputs(), {}));
  }
  for (int m = 0; m < 2; ++m) {
    const auto loss = model->loss(above[m].outputs(), batch.targets.narrow(0, 5 * m, 5)).loss;
    first.backward(below[m], second.backward(above[m], loss));
    EXPECT_TRUE(below[m].outputs().empty());  // freed on the way
  }
  const auto whole = gradients_with({});
  const auto found = gradients_of(*model);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LT((found[i] - whole[i]).abs().max().item<double>(), 1e-14) << "parameter " << i;
}

TEST(SegmentWalkTest, ACutOutsideTheModelIsRefused) {
  auto model = small_model();
  EXPECT_THROW(whole_walk(*model, {.cuts = {model->layers().size()}}), Error);
  EXPECT_THROW(whole_walk(*model, {.cuts = {2, 1}}), Error);
}

}  // namespace
}  // namespace dtrain::parallel
