#include "parallel/strategy/outer_update.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace dtrain::parallel {
namespace {

TEST(OuterUpdateTest, ARateOfOneWithoutMomentumLeavesTheMean) {
  auto values = at::tensor({1.0, 2.0});
  OuterUpdate outer({.learning_rate = 1, .momentum = 0}, values);
  outer.begin(values);
  for (const double to : {3.0, -5.0}) {
    values.fill_(to);
    outer.apply(values);
    EXPECT_TRUE(at::equal(values, at::full({2}, to, at::kDouble))) << values;
  }
}

// By hand, with mu = 1/2 and rate 1/2. Round 1: from 4 to 2, difference 2, momentum 2, 4 - (2 + 1) / 2 = 2.5.
// Round 2: from 2.5 to 1.5, difference 1, momentum 2, 2.5 - (1 + 1) / 2 = 1.5.
TEST(OuterUpdateTest, IsNesterovsMethodOnWhatARoundHasChanged) {
  auto values = at::tensor({4.0});
  OuterUpdate outer({.learning_rate = 0.5, .momentum = 0.5}, values);
  outer.begin(values);
  values.fill_(2.0);
  outer.apply(values);
  EXPECT_EQ(values.item<double>(), 2.5);
  EXPECT_EQ(outer.momentum().item<double>(), 2.0);
  values.fill_(1.5);
  outer.apply(values);
  EXPECT_EQ(values.item<double>(), 1.5);
  EXPECT_EQ(outer.momentum().item<double>(), 2.0);
}

}  // namespace
}  // namespace dtrain::parallel
