#include "data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/slice.hpp"
#include "data/epoch_requests.hpp"

namespace dtrain::data {
namespace {

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> counted(std::int64_t n) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return values;
}

TEST(SamplerTest, AShuffledEpochVisitsEachSampleOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 1000, 54001})
    EXPECT_EQ(sorted(epoch_order(n, Order::shuffled, 7, 3)), counted(n)) << n;
}

TEST(SamplerTest, TheOrderIsAFunctionOfSeedAndEpochAlone) {
  const auto order = epoch_order(1000, Order::shuffled, 7, 3);
  EXPECT_EQ(order, epoch_order(1000, Order::shuffled, 7, 3));
  EXPECT_NE(order, epoch_order(1000, Order::shuffled, 7, 4));
  EXPECT_NE(order, epoch_order(1000, Order::shuffled, 8, 3));
}

TEST(SamplerTest, EvaluationKeepsTheStoredOrder) {
  EXPECT_EQ(epoch_order(100, Order::identity, 7, 3), counted(100));
}

TEST(SamplerTest, EveryPlaceIsAboutAsLikelyForASample) {
  // Sample 0 over 8000 epochs of 8 samples: 1000 expected per place, standard deviation 30.
  std::vector<int> places(8, 0);
  for (std::int64_t epoch = 1; epoch <= 8000; ++epoch) {
    const auto order = epoch_order(8, Order::shuffled, 1, epoch);
    ++places[std::find(order.begin(), order.end(), 0) - order.begin()];
  }
  for (const int count : places) EXPECT_NEAR(count, 1000, 150);
}

/// Lengths distributed like those of IMDB's training reviews: between their measured quantiles, in any order.
std::vector<std::int64_t> review_lengths(std::int64_t n) {
  constexpr std::array<double, 12> kShare = {0, .01, .05, .1, .25, .5, .75, .9, .95, .99, .999, 1};
  constexpr std::array<double, 12> kTokens = {11, 52, 80, 115, 158, 220, 360, 580, 756, 1140, 1439, 2883};
  std::vector<std::int64_t> lengths;
  for (const std::int64_t draw : epoch_order(n, Order::shuffled, 99, 1)) {
    const double share = (static_cast<double>(draw) + 0.5) / static_cast<double>(n);
    std::size_t above = 1;
    while (kShare[above] < share) ++above;
    const double part = (share - kShare[above - 1]) / (kShare[above] - kShare[above - 1]);
    lengths.push_back(
        static_cast<std::int64_t>(kTokens[above - 1] + part * (kTokens[above] - kTokens[above - 1])));
  }
  return lengths;
}

/// Tokens that are computed, padding included, over those that are there.
double computed_over_real(const std::vector<std::int64_t>& order, const std::vector<std::int64_t>& lengths,
                          std::int64_t batch) {
  double computed = 0;
  double real = 0;
  const auto n = static_cast<std::int64_t>(order.size());
  const parallel::Pieces pieces{.samples = n, .global_batch = batch};
  for (std::int64_t step = 0; step < pieces.steps(); ++step) {
    const Range range = pieces.step(step);
    std::int64_t longest = 0;
    for (std::int64_t at = range.begin; at < range.end; ++at) {
      longest = std::max(longest, lengths[order[at]]);
      real += static_cast<double>(lengths[order[at]]);
    }
    computed += static_cast<double>(longest * range.size());
  }
  return computed / real;
}

TEST(SamplerTest, WithoutLengthsTrainingIsShuffledAsEver) {
  EXPECT_EQ(training_order(1000, {}, 64, 7, 3), epoch_order(1000, Order::shuffled, 7, 3));
}

TEST(SamplerTest, BatchesOfLikeLengthsHoldEverySampleOnce) {
  for (const std::int64_t n : {1, 63, 64, 65, 5000, 20001}) {
    const auto lengths = review_lengths(n);
    EXPECT_EQ(sorted(training_order(n, lengths, 64, 7, 3)), counted(n)) << n;
  }
  EXPECT_TRUE(training_order(0, {}, 64, 7, 3).empty());
}

TEST(SamplerTest, TheOrderByLengthIsAFunctionOfItsArgumentsAlone) {
  const auto lengths = review_lengths(5000);
  const auto order = training_order(5000, lengths, 64, 7, 3);
  EXPECT_EQ(order, training_order(5000, lengths, 64, 7, 3));
  EXPECT_NE(order, training_order(5000, lengths, 64, 7, 4));
  EXPECT_NE(order, training_order(5000, lengths, 64, 8, 3));
}

TEST(SamplerTest, BatchesOfLikeLengthsSaveMostOfThePadding) {
  const auto lengths = review_lengths(20000);
  const double shuffled = computed_over_real(epoch_order(20000, Order::shuffled, 7, 1), lengths, 64);
  const double bucketed = computed_over_real(training_order(20000, lengths, 64, 7, 1), lengths, 64);
  EXPECT_GT(shuffled, 3.0);
  EXPECT_LT(bucketed, 1.2);
}

TEST(SamplerTest, ShortAndLongBatchesComeInNoOrder) {
  const auto lengths = review_lengths(12800);
  const auto order = training_order(12800, lengths, 64, 7, 1);
  int longer_than_before = 0;
  for (std::int64_t batch = 1; batch < 200; ++batch)
    if (lengths[order[64 * batch]] > lengths[order[64 * (batch - 1)]]) ++longer_than_before;
  EXPECT_NEAR(longer_than_before, 100, 40);  // 199 if they were sorted
}

TEST(SamplerTest, RanksTogetherUseEachSampleOnceHoweverManyThereAre) {
  const std::int64_t n = 1003;
  const auto order = epoch_order(n, Order::shuffled, 5, 1);
  const int pieces = 8;
  const std::int64_t steps = (n + 63) / 64;
  for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
    std::vector<std::int64_t> used;
    std::uint64_t hash = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Range mine = part_of(pieces, rank, ranks);
      for (const auto& request : epoch_requests(order, 64, pieces, mine, {0, steps}, 100)) {
        EXPECT_GE(request.step, 100);
        EXPECT_GE(request.micro_batch, mine.begin);
        EXPECT_LT(request.micro_batch, mine.end);
        used.insert(used.end(), request.samples.begin(), request.samples.end());
        hash += sample_hash(request.samples);
      }
    }
    EXPECT_EQ(sorted(used), counted(n)) << ranks << " ranks";
    EXPECT_EQ(hash, epoch_hash(n)) << ranks << " ranks";
  }
}

TEST(SamplerTest, APieceHoldsTheSameSamplesOnAnyNumberOfRanks) {
  const auto order = epoch_order(130, Order::shuffled, 5, 1);
  const auto alone = epoch_requests(order, 64, 4, {0, 4}, {0, 3}, 0);
  const auto second = epoch_requests(order, 64, 4, {2, 4}, {0, 3}, 0);  // the second of two ranks
  ASSERT_EQ(alone.size(), 12);
  ASSERT_EQ(second.size(), 6);
  for (std::size_t step = 0; step < 3; ++step)
    for (std::size_t piece = 0; piece < 2; ++piece)
      EXPECT_EQ(second[step * 2 + piece].samples, alone[step * 4 + 2 + piece].samples);
}

TEST(SamplerTest, TheHashSeesADuplicateThatReplacesAnother) {
  EXPECT_EQ(sample_hash(std::vector<std::int64_t>{1, 2, 3}), sample_hash(std::vector<std::int64_t>{3, 1, 2}));
  EXPECT_NE(sample_hash(std::vector<std::int64_t>{1, 2, 3}), sample_hash(std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_NE(sample_hash(std::vector<std::int64_t>{0, 3}), sample_hash(std::vector<std::int64_t>{1, 2}));
}

}  // namespace
}  // namespace dtrain::data
