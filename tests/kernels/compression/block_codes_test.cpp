#include "kernels/compression/block_codes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace dtrain::kernels {
namespace {

struct Block {
  std::vector<std::uint8_t> codes;
  float scale = 0;
};

Block encoded(const std::vector<float>& values, Levels levels) {
  Block block{.codes = std::vector<std::uint8_t>(values.size())};
  block.scale = encode_block(block.codes.data(), values.data(), values.size(), levels);
  return block;
}

std::vector<float> decoded(const Block& block, Levels levels) {
  std::vector<float> values(block.codes.size());
  decode_block(values.data(), block.codes.data(), block.scale, values.size(), levels);
  return values;
}

/// Sizes over many tenths.
std::vector<float> numbers(std::size_t count, unsigned seed, Levels levels) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-9, 1);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::pow(10.0F, exponent(random));
    if (levels == Levels::with_sign && random() % 2 == 0) value = -value;
  }
  return values;
}

constexpr std::array<Levels, 2> kAll = {Levels::with_sign, Levels::positive};

TEST(BlockCodesTest, LevelsAscendFromTheTenMillionthsUpToOne) {
  for (const Levels levels : kAll) {
    const auto& values = code_values(levels);
    EXPECT_TRUE(std::ranges::is_sorted(values));
    EXPECT_EQ(std::ranges::count(values, 0.0F), 1);
    EXPECT_EQ(values.back(), 1.0F);
    EXPECT_EQ(std::ranges::adjacent_find(values), values.end());
  }
  EXPECT_FLOAT_EQ(code_values(Levels::with_sign)[128], 0.55e-6F);
  EXPECT_EQ(code_values(Levels::with_sign)[126], -code_values(Levels::with_sign)[128]);
  EXPECT_FLOAT_EQ(code_values(Levels::positive)[1], 0.325e-6F);
}

TEST(BlockCodesTest, EachNumberGetsTheNearestLevel) {
  for (const Levels levels : kAll) {
    const auto& all = code_values(levels);
    for (unsigned seed = 0; seed < 40; ++seed) {
      const auto values = numbers(1 + seed * 37 % kCodeBlock, seed, levels);
      const Block block = encoded(values, levels);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float share = values[i] / block.scale;
        float least = INFINITY;
        for (std::size_t code = levels == Levels::positive ? 1 : 0; code < all.size(); ++code)
          least = std::min(least, std::abs(all[code] - share));
        EXPECT_LE(std::abs(all[block.codes[i]] - share), least * 1.0001F) << share;
      }
    }
  }
}

TEST(BlockCodesTest, WhatWasDecodedHasTheSameCodesAgain) {
  for (const Levels levels : kAll) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Block block = encoded(numbers(kCodeBlock, seed, levels), levels);
      const Block again = encoded(decoded(block, levels), levels);
      EXPECT_EQ(again.codes, block.codes);
      EXPECT_EQ(again.scale, block.scale);
    }
  }
}

TEST(BlockCodesTest, TheLargestInSizeIsItselfWhateverItsSign) {
  const Block block = encoded({0.25F, -3.0F, 3.0F, 0}, Levels::with_sign);
  EXPECT_EQ(block.scale, -3.0F);
  EXPECT_EQ(decoded(block, Levels::with_sign)[1], -3.0F);
  EXPECT_NEAR(decoded(block, Levels::with_sign)[2], 3.0F, 0.03F);
  EXPECT_EQ(decoded(block, Levels::with_sign)[3], 0.0F);
}

TEST(BlockCodesTest, AllZerosStayZeros) {
  for (const Levels levels : kAll) {
    const Block block = encoded(std::vector<float>(7, 0.0F), levels);
    EXPECT_EQ(block.scale, 0.0F);
    EXPECT_EQ(decoded(block, levels), std::vector<float>(7, 0.0F));
  }
}

TEST(BlockCodesTest, WhatARootDividesByIsAboveZeroWhereItWas) {
  const auto values = decoded(encoded({1.0F, 1e-30F, 0.0F}, Levels::positive), Levels::positive);
  EXPECT_GT(values[1], 0.0F);
  EXPECT_EQ(values[2], 0.0F);
}

}  // namespace
}  // namespace dtrain::kernels
