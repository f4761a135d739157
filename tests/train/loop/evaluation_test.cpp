#include "train/loop/evaluation.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "plan/memory_estimate.hpp"

namespace dtrain::train {
namespace {

TEST(EvaluationTest, MeansComeFromSumsAndNoSamplesGiveNoMeans) {
  const auto scores =
      scores_of({.loss = 6, .weight = 4, .correct = 3, .counted = 4}, 4, Scoring::loss_and_accuracy);
  EXPECT_EQ(scores.loss, 1.5);
  EXPECT_EQ(scores.accuracy, 0.75);
  EXPECT_TRUE(std::isnan(scores_of({.loss = 6, .weight = 4}, 4, Scoring::loss_only).accuracy));
  EXPECT_TRUE(std::isnan(scores_of({}, 0, Scoring::loss_and_accuracy).loss));
}

std::int64_t batch_of(const std::string& name, const models::DatasetFacts& facts, int micro_batch,
                      int wanted = 0, const std::string& limit = "none", int tensor = 1) {
  RunConfig config;
  config.batch = {.global_batch = 2 * micro_batch, .micro_batches = 2, .evaluation = wanted};
  config.pipeline.memory_limit = limit;
  config.mesh_shape.tensor = tensor;
  const auto model = models::find_model(name).make(facts, {});
  constexpr double kHeld = 0x1p29;
  return evaluation_batch(config, plan::evaluation_bytes({}, *model, facts.sample_shape), kHeld);
}

const models::DatasetFacts kDigits{
    .task = "image_classification", .sample_shape = {1, 28, 28}, .classes = 10};
const models::DatasetFacts kPhotos{
    .task = "image_classification", .sample_shape = {3, 224, 224}, .classes = 1000};
const models::DatasetFacts kText{.task = "language_modelling", .sample_shape = {256}, .vocabulary = 32000};

TEST(EvaluationTest, SmallSamplesAreTakenTogetherAndLargeOnesAsInTraining) {
  EXPECT_EQ(batch_of("mlp", kDigits, 16), 256);
  EXPECT_EQ(batch_of("mlp", kDigits, 1000), 256);
  EXPECT_EQ(batch_of("gpt", kText, 4), 4);
  EXPECT_LT(batch_of("vgg11", kPhotos, 2), 16);
  EXPECT_EQ(batch_of("vgg11", kPhotos, 32), 32);
}

TEST(EvaluationTest, AMemoryLimitLeavesRoomForWhatTrainingHolds) {
  EXPECT_EQ(batch_of("mlp", kDigits, 16, 0, "1GiB"), 256);
  EXPECT_EQ(batch_of("vgg11", kPhotos, 2, 0, "4GiB"), batch_of("vgg11", kPhotos, 2));
  EXPECT_EQ(batch_of("vgg11", kPhotos, 200, 0, "64GiB"), 200);
  const auto few = batch_of("vgg11", kPhotos, 200, 0, "1GiB");
  EXPECT_LT(few, 100);
  EXPECT_GT(few, 1);
  EXPECT_EQ(batch_of("vgg11", kPhotos, 200, 0, "256MiB"), 1);
  EXPECT_EQ(batch_of("vgg11", kPhotos, 200, 0, "1GiB", 2), 200) << "slices of a layer are not alike";
}

TEST(EvaluationTest, WhatIsAskedForIsTakenOrRefused) {
  EXPECT_EQ(batch_of("mlp", kDigits, 16, 7), 7);
  EXPECT_EQ(batch_of("mlp", kDigits, 16, 1000, "1GiB"), 1000);
  try {
    batch_of("vgg11", kPhotos, 2, 1000, "1GiB");
    ADD_FAILURE() << "1000 photos do not fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), "--eval-batch 1000");
  }
}

}  // namespace
}  // namespace dtrain::train
