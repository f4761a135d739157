#include "inference/sampling.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "core/error.hpp"

namespace dtrain::inference {
namespace {

/// Softmax of these: 0.1, 0.6, 0.25, 0.05.
at::Tensor logits() { return at::tensor({0.1, 0.6, 0.25, 0.05}).log().to(at::kFloat); }

std::array<int, 4> counts_of(const SamplingConfig& config, int draws) {
  std::array<int, 4> counts{};
  for (int i = 0; i < draws; ++i)
    ++counts.at(static_cast<std::size_t>(sample_token(logits(), config, static_cast<std::uint32_t>(i))));
  return counts;
}

TEST(SamplingTest, TemperatureZeroTakesTheLikeliest) {
  for (std::uint32_t position = 0; position < 50; ++position)
    EXPECT_EQ(sample_token(logits(), {.temperature = 0}, position), 1);
}

TEST(SamplingTest, FrequenciesAreTheProbabilities) {
  constexpr int kDraws = 4000;
  const auto counts = counts_of({.seed = 7}, kDraws);
  const std::array<double, 4> wanted = {0.1, 0.6, 0.25, 0.05};
  // Five standard deviations of a share of 4000 draws are at most 0.04.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / static_cast<double>(kDraws), wanted[i], 0.04);
}

TEST(SamplingTest, ALowTemperatureSharpens) {
  EXPECT_GT(counts_of({.temperature = 0.3}, 1000)[1], counts_of({}, 1000)[1] + 200);
}

TEST(SamplingTest, TopKAndTopPLeaveTheRestOut) {
  const auto two = counts_of({.top_k = 2}, 1000);
  EXPECT_EQ(two[0] + two[3], 0);
  EXPECT_GT(two[2], 0);
  const auto share = counts_of({.top_p = 0.8}, 1000);  // 0.6 is less, 0.6 + 0.25 is enough
  EXPECT_EQ(share[0] + share[3], 0);
  EXPECT_GT(share[2], 0);
  EXPECT_EQ(counts_of({.top_p = 0.5}, 1000)[1], 1000);
}

TEST(SamplingTest, AFunctionOfSeedAndPosition) {
  std::set<std::vector<std::int32_t>> texts;
  for (const std::uint64_t seed : {1, 1, 2}) {
    std::vector<std::int32_t> text;
    for (std::uint32_t position = 0; position < 40; ++position)
      text.push_back(sample_token(logits(), {.seed = seed}, position));
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 2U);
}

TEST(SamplingTest, ImpossibleValuesAreRefused) {
  EXPECT_THROW(SamplingConfig{.temperature = -1}.validate(), Error);
  EXPECT_THROW(SamplingConfig{.temperature = std::numeric_limits<double>::quiet_NaN()}.validate(), Error);
  EXPECT_THROW(SamplingConfig{.top_k = -1}.validate(), Error);
  EXPECT_THROW(SamplingConfig{.top_p = 0}.validate(), Error);
  EXPECT_THROW(SamplingConfig{.top_p = 1.5}.validate(), Error);
  EXPECT_NO_THROW(SamplingConfig{}.validate());
}

}  // namespace
}  // namespace dtrain::inference
