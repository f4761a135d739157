#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.hpp"

namespace dtrain::optim {
namespace {

std::vector<double> rates(const ScheduleConfig& schedule, std::int64_t total) {
  std::vector<double> all;
  for (std::int64_t step = 1; step <= total; ++step) all.push_back(learning_rate(schedule, step, total));
  return all;
}

void expect_rates(const char* name, const std::vector<double>& expected, double least = 0.0) {
  const auto got = rates({.name = name, .learning_rate = 0.1, .least_rate = least},
                         static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-15) << name << " step " << i + 1;
}

// PyTorch 2.11: SGD(lr=0.1) and, from torch.optim.lr_scheduler, OneCycleLR(max_lr=0.1, total_steps=10 or 3,
// cycle_momentum=False), CosineAnnealingLR(T_max=10), MultiStepLR([5, 8]), LinearLR(1.0, 1e-30,
// total_iters=10); param_groups[0]["lr"] before each of the steps.
TEST(ScheduleTest, RatesAreTorchs) {
  expect_rates("one_cycle",
               {0.0040000000000000036, 0.052000000000000005, 0.10000000000000001, 0.095048463201347383,
                0.081174565394976306, 0.06112620219362893, 0.038874197806371073, 0.018825834605023701,
                0.0049519367986526289, 3.9999999999999998e-07});
  expect_rates("one_cycle", {0.099441543545091188, 0.046263710266697504, 3.9999999999999998e-07});
  expect_rates("cosine",
               {0.10000000000000001, 0.097552825814757688, 0.090450849718747381, 0.079389262614623674,
                0.065450849718747386, 0.05000000000000001, 0.03454915028125264, 0.020610737385376353,
                0.0095491502812526351, 0.002447174185242324});
  expect_rates("step", {0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001});
  expect_rates("linear", {0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01});
}

// The same with CosineAnnealingLR(eta_min=0.02), LinearLR(1.0, 0.2, total_iters=10) and
// OneCycleLR(final_div_factor=0.1 / 25 / 0.02).
TEST(ScheduleTest, LeastRatesAreTorchs) {
  expect_rates("cosine",
               {0.10000000000000001, 0.098042260651806157, 0.0923606797749979, 0.083511410091698934,
                0.072360679774997896, 0.059999999999999998, 0.047639320225002099, 0.036488589908301075,
                0.027639320225002106, 0.02195773934819386},
               0.02);
  expect_rates("linear", {0.1, 0.092, 0.084, 0.076, 0.068, 0.06, 0.052, 0.044, 0.036, 0.028}, 0.02);
  expect_rates("one_cycle",
               {0.0040000000000000036, 0.052000000000000005, 0.10000000000000001, 0.096038754716096769,
                0.084939592074349354, 0.068900837358252573, 0.051099162641747423, 0.035060407925650662,
                0.02396124528390324, 0.02},
               0.02);
}

TEST(ScheduleTest, NoScheduleEndsBelowTheLeastRate) {
  expect_rates("step", {0.1, 0.1, 0.1, 0.1, 0.1, 0.02, 0.02, 0.02, 0.02, 0.02}, 0.02);
  expect_rates("wsd", {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.06}, 0.02);
}

TEST(ScheduleTest, WarmUpStableDecayFallsOverTheLastFifth) {
  expect_rates("wsd", {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05});
  expect_rates("constant", {0.1, 0.1, 0.1});
}

TEST(ScheduleTest, WarmUpRisesLinearlyAndTheScheduleFollows) {
  const ScheduleConfig schedule{.name = "linear", .learning_rate = 0.4, .warmup_steps = 3};
  const std::vector<double> expected = {0.1, 0.2, 0.3, 0.4, 0.3, 0.2, 0.1};
  const auto got = rates(schedule, 7);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15);
}

TEST(ScheduleTest, RunsOfOneStepAndWarmUpsLongerThanTheRunStayFinite) {
  for (const std::string& name : schedule_names()) {
    const double only = learning_rate({.name = name, .learning_rate = 0.1}, 1, 1);
    EXPECT_TRUE(only > 0.0 && only <= 0.1) << name;
    const double warming = learning_rate({.name = name, .learning_rate = 0.1, .warmup_steps = 9}, 5, 5);
    EXPECT_NEAR(warming, 0.05, 1e-15) << name;
  }
}

TEST(ScheduleTest, RefusesWhatCannotWork) {
  const auto code = [](const ScheduleConfig& schedule) {
    try {
      schedule.validate();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::success;
  };
  EXPECT_EQ(code({}), ExitCode::success);
  EXPECT_EQ(code({.name = "cosin"}), ExitCode::usage);
  EXPECT_EQ(code({.learning_rate = 0.0}), ExitCode::usage);
  EXPECT_EQ(code({.learning_rate = std::numeric_limits<double>::quiet_NaN()}), ExitCode::usage);
  EXPECT_EQ(code({.warmup_steps = -1}), ExitCode::usage);
  EXPECT_EQ(code({.name = "cosine", .learning_rate = 0.1, .least_rate = 0.01}), ExitCode::success);
  EXPECT_EQ(code({.name = "cosine", .learning_rate = 0.1, .least_rate = 0.1}), ExitCode::usage);
  EXPECT_EQ(code({.name = "constant", .learning_rate = 0.1, .least_rate = 0.01}), ExitCode::usage);
  EXPECT_EQ(code({.name = "one_cycle", .warmup_steps = 5}), ExitCode::usage);
}

TEST(ClipTest, ScalesDownOnlyWhatExceedsTheLimit) {
  EXPECT_EQ(clip_coefficient(3.0, 0.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_coefficient(4.0, 1.0), 0.25, 1e-6);
}

}  // namespace
}  // namespace dtrain::optim
