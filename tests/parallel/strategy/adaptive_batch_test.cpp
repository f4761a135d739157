#include "parallel/strategy/adaptive_batch.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "parallel/gradients/noise_scale.hpp"

namespace dtrain::parallel {
namespace {

/// Gradients of samples: a true one, and independent normal noise in each element.
class SyntheticGradients {
 public:
  SyntheticGradients(double signal, double noise, int elements, unsigned seed) : random_(seed) {
    for (int i = 0; i < elements; ++i) {
      gradient_.push_back(std::sqrt(signal / elements));
      deviation_.push_back(std::sqrt(noise * 2 * (i + 1) / elements / (elements + 1)));  // not all alike
    }
  }

  /// What a step comes to whose copies have so many samples.
  StepTotals step(const std::vector<int>& samples) {
    StepTotals total;
    std::vector<double> sums(gradient_.size());
    for (const int count : samples) {
      double squares = 0;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double sum = count * gradient_[i] + std::sqrt(count) * deviation_[i] * normal_(random_);
        squares += std::pow(sum / count, 2);
        sums[i] += sum;
      }
      total.copy_squares += squares;
      total.copy_inverse += 1.0 / count;
      total.copies += 1;
      total.samples += count;
    }
    total.weight = total.samples;
    for (const double sum : sums) total.gradient_squares += sum * sum;
    return total;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::vector<double> gradient_;
  std::vector<double> deviation_;  // of one sample
};

optim::OptimizerConfig rule(const char* name) {
  optim::OptimizerConfig config;
  config.name = name;
  return config;
}

TEST(NoiseScaleTest, FollowsFromTheNormsOfTwoBatchSizes) {
  // |G|^2 = 3 and S = 40.
  const auto found = noise_estimate({.small_squares = 3 + 40.0 / 8,
                                     .small_inverse = 1.0 / 8,
                                     .large_squares = 3 + 40.0 / 32,
                                     .large_inverse = 1.0 / 32});
  EXPECT_NEAR(found.noise, 40, 1e-12);
  EXPECT_NEAR(found.signal, 3, 1e-12);
  const auto same =
      noise_estimate({.small_squares = 3, .small_inverse = 0.1, .large_squares = 3, .large_inverse = 0.1});
  EXPECT_EQ(same.noise, 0);
  EXPECT_EQ(same.signal, 0);
}

TEST(AdaptiveBatchTest, FindsTheNoiseScaleOfAKnownCovarianceWithinATenth) {
  for (const double scale : {20.0, 100.0, 500.0}) {
    for (const auto& samples : std::vector<std::vector<int>>{{16, 16, 16, 16}, {32, 32}, {5, 11, 16, 32}}) {
      SyntheticGradients gradients(2.5, 2.5 * scale, 200, 7);
      AdaptiveBatch adaptive(64, rule("sgd"));
      for (int k = 0; k < 400; ++k) adaptive.add(gradients.step(samples), 1);
      EXPECT_NEAR(adaptive.noise_scale() / scale, 1, 0.1) << scale << ", " << samples.size() << " copies";
    }
  }
}

TEST(AdaptiveBatchTest, LossScalesAndWeightsOfSamplesDoNotMatter) {
  SyntheticGradients gradients(1, 300, 50, 3);
  AdaptiveBatch plain(64, rule("sgd"));
  AdaptiveBatch scaled(64, rule("sgd"));
  for (int k = 0; k < 5; ++k) {
    auto total = gradients.step({8, 24});
    plain.add(total, 1);
    total.weight *= 10;  // tokens
    total.gradient_squares *= 1024.0 * 1024.0 * 100;
    scaled.add(total, 1024);
  }
  EXPECT_NEAR(scaled.noise_scale() / plain.noise_scale(), 1, 1e-9);
}

/// As if its epoch had shown exactly this.
void show(AdaptiveBatch& adaptive, double noise_scale) {
  const double small = 1 + noise_scale / 16;
  adaptive.add({.weight = 64,
                .samples = 64,
                .gradient_squares = (1 + noise_scale / 64) * 64 * 64,
                .copy_squares = 4 * small,
                .copy_inverse = 4.0 / 16,
                .copies = 4},
               1);
}

TEST(AdaptiveBatchTest, AStepTakesAsManyBatchesAsTheNoiseAsksForOneDoublingAtATime) {
  AdaptiveBatch adaptive(64, rule("sgd"));
  EXPECT_EQ(adaptive.batches(), 1);
  EXPECT_EQ(adaptive.rate(), 1);
  for (const int wanted : {2, 4, 8, 8}) {
    show(adaptive, 512);
    const auto words = adaptive.end_epoch(10'000);
    EXPECT_EQ(adaptive.batches(), wanted);
    EXPECT_NEAR(adaptive.rate(), (1 + 512.0 / 64) / (1 + 512.0 / (64 * wanted)), 1e-9);
    EXPECT_NE(words.find("noise scale is 512 samples"), std::string::npos) << words;
  }
}

TEST(AdaptiveBatchTest, ItFallsAgainAndNeverBelowOneBatch) {
  AdaptiveBatch adaptive(64, rule("adam"));
  show(adaptive, 512);
  adaptive.end_epoch(10'000);
  EXPECT_NEAR(adaptive.rate(), std::sqrt(9.0 / 5.0), 1e-9) << "the rule of adam";
  for (int k = 0; k < 8; ++k) {
    show(adaptive, 10);
    show(adaptive, 10);
    adaptive.end_epoch(10'000);
  }
  EXPECT_EQ(adaptive.batches(), 1);
  EXPECT_EQ(adaptive.rate(), 1);
}

TEST(AdaptiveBatchTest, AnEpochKeepsEnoughSteps) {
  AdaptiveBatch adaptive(64, rule("sgd"));
  for (int k = 0; k < 6; ++k) {
    show(adaptive, 1e6);
    adaptive.end_epoch(3 * AdaptiveBatch::kLeastSteps);
  }
  EXPECT_EQ(adaptive.batches(), 2) << "a power of two, of 3";
  for (int k = 0; k < 6; ++k) {
    show(adaptive, 1e6);
    adaptive.end_epoch(1'000'000);
  }
  EXPECT_EQ(adaptive.batches(), AdaptiveBatch::kMostBatches);
}

TEST(AdaptiveBatchTest, WhatIsNotPositiveIsNotKnown) {
  AdaptiveBatch adaptive(64, rule("sgd"));
  EXPECT_TRUE(std::isnan(adaptive.noise_scale()));
  EXPECT_NE(adaptive.end_epoch(10'000).find("not known"), std::string::npos);
  EXPECT_EQ(adaptive.batches(), 1);
  adaptive.add({.weight = 64,
                .samples = 64,
                .gradient_squares = 64 * 64,
                .copy_squares = 1,
                .copy_inverse = 0.1,
                .copies = 1},
               1);
  EXPECT_TRUE(std::isnan(adaptive.noise_scale())) << "one copy shows nothing";
  show(adaptive, -0.5);  // the mean gradient is the longer one
  EXPECT_TRUE(std::isnan(adaptive.noise_scale()));
}

TEST(AdaptiveBatchTest, OneStepOfSixteenIsMeasured) {
  AdaptiveBatch adaptive(64, rule("sgd"));
  const auto measured = [&](std::int64_t last) {
    int count = 0;
    for (auto step = adaptive.batches(); step <= last; step += adaptive.batches())
      count += adaptive.measures(step) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(measured(160), 10);
  show(adaptive, 512);
  adaptive.end_epoch(10'000);
  EXPECT_EQ(measured(320), 10) << "of steps of two batches";
}

/// As from a checkpoint.
void take_over(const AdaptiveBatch& first, AdaptiveBatch& second) {
  const auto from = first.saved();
  auto to = second.saved();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i].value.copy_(from[i].value);
  second.adopt();
}

TEST(AdaptiveBatchTest, AnotherGlobalBatchKeepsTheNoiseAndBeginsWithOneBatch) {
  AdaptiveBatch first(64, rule("sgd"));
  for (int k = 0; k < 2; ++k) {
    show(first, 512);
    first.end_epoch(10'000);
  }
  ASSERT_EQ(first.batches(), 4);
  AdaptiveBatch second(256, rule("sgd"));
  take_over(first, second);
  EXPECT_EQ(second.batches(), 1) << "a step of 256 samples, as before";
  EXPECT_EQ(second.rate(), 1);
  EXPECT_NEAR(second.noise_scale(), 512, 1e-9);
  AdaptiveBatch third(256, rule("sgd"));
  show(second, 512);
  second.end_epoch(10'000);
  take_over(second, third);
  EXPECT_EQ(third.batches(), 2) << "what it saves is counted in its own batches";
}

TEST(AdaptiveBatchTest, AnOlderCheckpointHasNoGlobalBatchAndCountsInThisOne) {
  AdaptiveBatch first(64, rule("sgd"));
  show(first, 512);
  first.end_epoch(10'000);
  AdaptiveBatch second(64, rule("sgd"));
  const auto to = second.saved();
  EXPECT_FALSE(to.back().anew.empty()) << "else it may not be missing";
  at::Tensor(to.front().value).copy_(first.saved().front().value);
  second.adopt();
  EXPECT_EQ(second.batches(), 2);
  EXPECT_EQ(second.rate(), first.rate());
}

TEST(AdaptiveBatchTest, GoesOnWhereAnotherStood) {
  AdaptiveBatch first(64, rule("sgd"));
  show(first, 512);
  first.end_epoch(10'000);
  show(first, 300);
  AdaptiveBatch second(64, rule("sgd"));
  take_over(first, second);
  EXPECT_EQ(second.batches(), 2);
  EXPECT_EQ(second.rate(), first.rate());
  EXPECT_EQ(second.end_epoch(10'000), first.end_epoch(10'000));
}

}  // namespace
}  // namespace dtrain::parallel
