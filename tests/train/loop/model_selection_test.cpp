#include "train/loop/model_selection.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "core/error.hpp"

namespace dtrain::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kStepsPerEpoch = 10;

ModelSelection selection(const ValidationConfig& config) {
  return {config, kStepsPerEpoch, Scoring::loss_and_accuracy, 100};
}

bool improves(double loss, double best) {
  return selection({}).improves({.loss = loss}, {.step = 1, .loss = best});
}

TEST(ModelSelectionTest, ASmallerLossIsBetter) {
  EXPECT_TRUE(improves(0.5, 1.0));
  EXPECT_FALSE(improves(1.0, 1.0));
  EXPECT_FALSE(improves(2.0, 1.0));
  EXPECT_TRUE(improves(2.0, kInfinity));
}

TEST(ModelSelectionTest, AnyLossIsBetterThanNoneAndNoneIsBetterThanNothing) {
  EXPECT_TRUE(improves(1e9, kNan));
  EXPECT_FALSE(improves(kNan, 1.0));
  EXPECT_FALSE(improves(kNan, kNan));
  EXPECT_FALSE(improves(kNan, kInfinity));
  EXPECT_TRUE(selection({}).improves({.loss = kNan}, {}));
}

TEST(ModelSelectionTest, AHigherAccuracyIsBetterAndOfEqualOnesTheSmallerLoss) {
  const auto by_accuracy = selection({.best_by = "accuracy"});
  const checkpoint::BestSoFar best{.step = 5, .loss = 1.0, .accuracy = 0.5};
  EXPECT_TRUE(by_accuracy.improves({.loss = 2.0, .accuracy = 0.6}, best));
  EXPECT_FALSE(by_accuracy.improves({.loss = 0.1, .accuracy = 0.4}, best));
  EXPECT_TRUE(by_accuracy.improves({.loss = 0.9, .accuracy = 0.5}, best));
  EXPECT_FALSE(by_accuracy.improves({.loss = 1.0, .accuracy = 0.5}, best));
  EXPECT_FALSE(by_accuracy.improves({.loss = 0.1, .accuracy = kNan}, best));
  EXPECT_TRUE(by_accuracy.improves({.loss = 1.0, .accuracy = 0.1}, {.step = 5, .loss = 1.0}));
}

TEST(ModelSelectionTest, PatienceCountsEpochs) {
  const auto patient = selection({.early_stopping = 2});
  const checkpoint::BestSoFar best{.step = 20, .loss = 1.0};
  EXPECT_FALSE(patient.is_exhausted(30, best));
  EXPECT_FALSE(patient.is_exhausted(39, best));
  EXPECT_TRUE(patient.is_exhausted(40, best));
  EXPECT_FALSE(patient.is_exhausted(40, {})) << "nothing was validated";
  EXPECT_FALSE(selection({}).is_exhausted(1000, best)) << "none is wanted";
}

TEST(ModelSelectionTest, PatienceCountsEachValidationOnce) {
  for (const std::int64_t every : {1, 3, 4, 5, 7, 10, 20, 1000000007}) {
    const ValidationConfig config{.every = std::to_string(every) + "steps", .early_stopping = 3};
    const auto patient = selection(config);
    const checkpoint::BestSoFar best{.step = kStepsPerEpoch, .loss = 1.0};
    int seen = 0;
    for (std::int64_t step = kStepsPerEpoch + 1; step <= 80; ++step) {
      if (patient.due_within_epoch(step) || step % kStepsPerEpoch == 0) ++seen;
      EXPECT_EQ(patient.is_exhausted(step, best), seen >= 3) << every << " steps, after step " << step;
    }
  }
}

TEST(ModelSelectionTest, WhatTheModelOrTheDatasetHasNotIsRefused) {
  const auto refused = [](const ValidationConfig& config, Scoring scoring, std::int64_t samples) {
    try {
      ModelSelection(config, kStepsPerEpoch, scoring, samples);
    } catch (const Error& error) {
      return error.code() == ExitCode::usage ? error.subject() : "another code";
    }
    return std::string("accepted");
  };
  using enum Scoring;
  EXPECT_EQ(refused({}, loss_only, 0), "accepted");
  EXPECT_EQ(refused({.best_by = "accuracy"}, loss_only, 100), "--best-by accuracy");
  EXPECT_EQ(refused({.best_by = "accuracy"}, loss_and_accuracy, 0), "--best-by");
  EXPECT_EQ(refused({.early_stopping = 1}, loss_only, 0), "--early-stopping");
  EXPECT_EQ(refused({.every = "5steps"}, loss_only, 0), "--validate-every");
  EXPECT_EQ(refused({.every = "2epochs"}, loss_only, 100), "--validate-every");
  EXPECT_EQ(refused({.every = "10min"}, loss_only, 100), "--validate-every");
}

}  // namespace
}  // namespace dtrain::train
