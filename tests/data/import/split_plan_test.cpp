#include "data/import/split_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace dtrain::data {
namespace {

TEST(SplitPlanTest, EachClassKeepsASampleToTrainOn) {
  // 40 classes of one sample, and 20 of two: two tenths are 16 samples.
  std::vector<std::int64_t> classes;
  for (std::int64_t k = 0; k < 60; ++k) classes.insert(classes.end(), k < 40 ? 1 : 2, k);
  classes.insert(classes.end(), 20, 60);
  const auto plan = plan_splits({{"train", 100}}, classes, {.seed = 3});
  std::set<std::int64_t> trained;
  for (const std::int64_t id : plan.at("train").ids) trained.insert(classes[static_cast<std::size_t>(id)]);
  EXPECT_EQ(trained.size(), 61);
  EXPECT_EQ(plan.at("validation").ids.size(), plan.at("test").ids.size());
  EXPECT_EQ(plan.at("train").ids.size() + 2 * plan.at("test").ids.size(), 100);
}

TEST(SplitPlanTest, PairsGiveTenthsAndKeepOneOfTheirSamples) {
  std::vector<std::int64_t> sites;
  for (std::int64_t k = 0; k < 500; ++k) sites.insert(sites.end(), 2, k);
  const auto plan = plan_splits({{"train", 1000}}, sites, {.seed = 3});
  EXPECT_EQ(plan.at("validation").ids.size(), 100);
  EXPECT_EQ(plan.at("test").ids.size(), 100);
  std::set<std::int64_t> trained;
  for (const std::int64_t id : plan.at("train").ids) trained.insert(sites[static_cast<std::size_t>(id)]);
  EXPECT_EQ(trained.size(), 500);
}

TEST(SplitPlanTest, SamplesThatAreAloneAreSetAsideAsWell) {
  std::vector<std::int64_t> sites;
  for (std::int64_t k = 0; k < 100; ++k) sites.push_back(k);
  const auto plan = plan_splits({{"train", 100}}, sites, {.seed = 3});
  EXPECT_EQ(plan.at("validation").ids.size(), 10);
  EXPECT_EQ(plan.at("test").ids.size(), 10);
  EXPECT_EQ(plan.at("train").ids.size(), 80);
}

TEST(SplitPlanTest, SmallClassesGiveATenthTogether) {
  std::vector<std::int64_t> classes;
  for (std::int64_t k = 0; k < 20; ++k) classes.insert(classes.end(), 5, k);
  const auto plan = plan_splits({{"train", 100}}, classes, {.seed = 3});
  EXPECT_EQ(plan.at("validation").ids.size(), 10);
  EXPECT_EQ(plan.at("test").ids.size(), 10);
}

}  // namespace
}  // namespace dtrain::data
