#include "parallel/gradients/compression/rounded_sum.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/compression/nodes_in_memory.hpp"

namespace dtrain::parallel {
namespace {

using Values = std::vector<std::vector<float>>;  // by node

Values random_values(std::size_t nodes, std::size_t count, float size = 1) {
  std::mt19937 random(static_cast<unsigned>(nodes * 1000 + count));
  std::normal_distribution<float> normal(0, size);
  Values values(nodes, std::vector<float>(count));
  for (auto& of_node : values)
    for (auto& value : of_node) value = normal(random);
  return values;
}

std::vector<double> plain_sum(const Values& values) {
  std::vector<double> sums(values.front().size(), 0);
  for (const auto& of_node : values)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_node[i];
  return sums;
}

/// The sums that each node has.
Values summed(WireType type, Values values, std::uint64_t seed = 3, std::int64_t step = 1,
              std::uint64_t bucket = 0) {
  RoundedEncoding encoding(type, seed, bucket);
  encoding.begin_step(step);
  add_up(std::vector<comm::Encoding*>(values.size(), &encoding), values);
  return values;
}

constexpr std::array kTypes = {WireType::bfloat16, WireType::float16, WireType::int8};

TEST(RoundedSumTest, AllNodesHaveTheSameSumsNearTheOnesOfAllBits) {
  for (const auto type : kTypes) {
    const double off = type == WireType::float16    ? 0x1.0p-9
                       : type == WireType::bfloat16 ? 0x1.0p-6
                                                    : 0x1.0p-5;
    for (const std::size_t nodes : {2U, 3U, 5U}) {
      for (const std::size_t count : {0U, 1U, 255U, 256U, 1000U, 5000U}) {
        const auto values = random_values(nodes, count);
        const auto expected = plain_sum(values);
        const auto sums = summed(type, values);
        for (std::size_t node = 1; node < nodes; ++node) EXPECT_EQ(sums[node], sums[0]);
        for (std::size_t i = 0; i < count; ++i)
          EXPECT_NEAR(sums[0][i], expected[i], 4 * off * static_cast<double>(nodes)) << i;
      }
    }
  }
}

TEST(RoundedSumTest, TheMeanOverManySeedsIsTheSum) {
  constexpr int kSeeds = 2000;
  const auto values = random_values(2, 300);
  const auto expected = plain_sum(values);
  for (const auto type : kTypes) {
    std::vector<double> mean(300, 0);
    std::vector<double> squares(300, 0);
    for (int seed = 0; seed < kSeeds; ++seed) {
      const auto sums = summed(type, values, static_cast<std::uint64_t>(seed)).front();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        mean[i] += sums[i] / kSeeds;
        squares[i] += (sums[i] - expected[i]) * (sums[i] - expected[i]) / kSeeds;
      }
    }
    for (std::size_t i = 0; i < mean.size(); ++i)  // 5.5 standard errors: one in 10^7 is beyond
      EXPECT_NEAR(mean[i], expected[i], 5.5 * std::sqrt(squares[i] / kSeeds) + 1e-6) << i;
  }
}

TEST(RoundedSumTest, ChancesAreThoseOfSeedStepAndBucket) {
  const auto values = random_values(2, 2000);
  for (const auto type : kTypes) {
    const auto sums = summed(type, values, 3, 7, 64);
    EXPECT_EQ(summed(type, values, 3, 7, 64), sums);
    EXPECT_NE(summed(type, values, 4, 7, 64), sums);
    EXPECT_NE(summed(type, values, 3, 8, 64), sums);
    EXPECT_NE(summed(type, values, 3, 7, 128), sums);
  }
}

TEST(RoundedSumTest, ANodeSendsWhatARingOfTheEncodedBytesDoes) {
  constexpr std::size_t kCount = 3 * 4 * BlockCodec::kBlock;
  for (const std::size_t nodes : {2U, 3U, 4U}) {
    for (const auto type : kTypes) {
      auto values = random_values(nodes, kCount);
      RoundedEncoding encoding(type, 1, 0);
      const auto sent = add_up(std::vector<comm::Encoding*>(nodes, &encoding), values);
      for (const auto bytes : sent) EXPECT_EQ(bytes, 2 * (nodes - 1) * encoding.bytes(kCount) / nodes);
    }
  }
}

TEST(RoundedSumTest, WhatIsNotFiniteIsSeenByAllNodes) {
  for (const auto type : kTypes) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      auto values = random_values(3, 1000);
      values[1][600] = bad;
      for (const auto& sums : summed(type, values)) {
        EXPECT_FALSE(std::isfinite(sums[600]));
        EXPECT_TRUE(std::isfinite(sums[0])) << "another block";
      }
    }
  }
}

TEST(RoundedSumTest, LargeAndSmallGradientsSurviveHalves) {
  for (const float size : {1e-30F, 1e30F}) {
    const auto values = random_values(2, 512, size);
    const auto expected = plain_sum(values);
    const auto sums = summed(WireType::float16, values).front();
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i] / size, expected[i] / size, 0.02);
  }
}

TEST(CompressionChoiceTest, NamesAreKnown) {
  EXPECT_FALSE(CompressionChoice::parse("none"));
  for (const auto* name : {"fp16", "bf16", "int8"}) EXPECT_TRUE(CompressionChoice::parse(name));
  EXPECT_EQ(CompressionChoice::parse("powersgd=4").rank, 4);
  EXPECT_TRUE(CompressionChoice::parse("powersgd=4").keeps_error());
  EXPECT_EQ(CompressionChoice::parse("topk=0.25").share, 0.25);
  EXPECT_TRUE(CompressionChoice::parse("auto"));
  EXPECT_FALSE(CompressionChoice::parse("auto").keeps_error());
  for (const auto* name :
       {"", "topk", "topk=0", "topk=0.6", "topk=nan", "topk=-1", "fp8", "FP16", "\x1b[2J", "powersgd",
        "powersgd=", "powersgd=0", "powersgd=-1", "powersgd=1.5", "powersgd=257"})
    EXPECT_THROW(CompressionChoice::parse(name), Error) << name;
}

}  // namespace
}  // namespace dtrain::parallel
