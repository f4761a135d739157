#include "kernels/compression/narrow.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace dtrain::kernels {
namespace {

std::vector<std::uint16_t> chances(std::size_t count, std::uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::uint16_t> all(count);
  for (auto& chance : all) chance = static_cast<std::uint16_t>(random());
  return all;
}

/// There and back as each type has it.
float bfloat16(float value, int of_65536) {
  const auto chance = static_cast<std::uint16_t>(of_65536);
  std::uint16_t narrow = 0;
  float wide = 0;
  narrow_to_bfloat16(&narrow, &value, &chance, 1);
  widen_bfloat16(&wide, &narrow, 1);
  return wide;
}
float float16(float value, int of_65536) {
  const auto chance = static_cast<std::uint16_t>(of_65536);
  std::uint16_t narrow = 0;
  float wide = 0;
  narrow_to_float16(&narrow, &value, 1, &chance, 1);
  widen_float16(&wide, &narrow, 1, 1);
  return wide;
}
float int8(float value, int of_65536) {
  const auto chance = static_cast<std::uint16_t>(of_65536);
  std::int8_t narrow = 0;
  float wide = 0;
  narrow_to_int8(&narrow, &value, 0.25F, &chance, 1);
  widen_int8(&wide, &narrow, 0.25F, 1);
  return wide;
}

TEST(NarrowTest, TheMeanOverAllChancesIsTheNumber) {
  for (const float value : {1.0F, 1.001F, -3.14159F, 0.3F, 12.34F, -0.00001F, 6.1e-5F, 3e-7F}) {
    const double size = std::abs(value);
    double of_bfloat16 = 0;
    double of_float16 = 0;
    double of_int8 = 0;
    for (int chance = 0; chance < 65536; ++chance) {
      of_bfloat16 += bfloat16(value, chance) / 65536.0;
      of_float16 += float16(value, chance) / 65536.0;
      of_int8 += int8(value, chance) / 65536.0;
    }
    EXPECT_NEAR(of_bfloat16, value, size * 1e-7) << value;
    EXPECT_NEAR(of_float16, value, std::max(size * 1e-6, 0x1.0p-24 / 65536)) << value;
    EXPECT_NEAR(of_int8, value, 0.25 / 65536) << value;
  }
}

TEST(NarrowTest, ANumberGoesToOneOfItsNeighbours) {
  for (const int chance : {0, 1, 32767, 32768, 65535}) {
    EXPECT_NEAR(bfloat16(1.003F, chance), 1.003F, 0x1.0p-7F);
    EXPECT_NEAR(float16(1.0003F, chance), 1.0003F, 0x1.0p-10F);
    EXPECT_NEAR(float16(3e-7F, chance), 3e-7F, 0x1.0p-24F);
    EXPECT_NEAR(int8(3.1F, chance), 3.1F, 0.25F);
  }
}

TEST(NarrowTest, WhatTheTypeHasStaysAsItIs) {
  for (const int chance : {0, 1, 32768, 65535}) {
    for (const float value : {0.0F, -0.0F, 1.0F, -2.5F, 0.15625F, 31.75F}) {
      EXPECT_EQ(bfloat16(value, chance), value);
      EXPECT_EQ(float16(value, chance), value);
    }
    for (const float value : {0.0F, 0.25F, -0.25F, 31.75F, -31.75F}) EXPECT_EQ(int8(value, chance), value);
    EXPECT_EQ(float16(0x1.0p-24F, chance), 0x1.0p-24F) << "the smallest half";
    EXPECT_EQ(float16(0x1.0p-14F, chance), 0x1.0p-14F) << "the smallest normal half";
    EXPECT_EQ(float16(32752.0F, chance), 32752.0F);
  }
}

TEST(NarrowTest, AllHalvesComeBack) {
  for (std::uint32_t bits = 0; bits < 0x7800; ++bits) {  // below 2^15
    const auto half = static_cast<std::uint16_t>(bits);
    float wide = 0;
    widen_float16(&wide, &half, 1, 1);
    const std::uint16_t chance = 65535;
    std::uint16_t back = 0;
    narrow_to_float16(&back, &wide, 1, &chance, 1);
    ASSERT_EQ(back, half);
  }
}

TEST(NarrowTest, OfBfloat16FiniteStaysFiniteAndNothingElseBecomesSo) {
  EXPECT_TRUE(std::isfinite(bfloat16(std::numeric_limits<float>::max(), 65535)));
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::infinity(), 65535), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bfloat16(-std::numeric_limits<float>::infinity(), 1), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(bfloat16(std::bit_cast<float>(0x7F80'0001U), 0)));
  EXPECT_TRUE(std::isnan(bfloat16(std::bit_cast<float>(0xFFFF'FFFFU), 65535)));
}

TEST(NarrowTest, TheLargestLevelIsNotPassed) {
  EXPECT_EQ(int8(31.75F * 1.0000001F, 65535), 31.75F);
  EXPECT_EQ(int8(-31.75F * 1.0000001F, 65535), -31.75F);
}

TEST(NarrowTest, ManyAreRoundedAsOneIs) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (const std::size_t count : {1U, 7U, 8U, 100U, 256U}) {
    const auto of_each = chances(count, count);
    std::vector<float> values(count);
    for (auto& value : values) value = normal(random);
    std::vector<std::uint16_t> halves(count);
    std::vector<std::uint16_t> brains(count);
    std::vector<std::int8_t> bytes(count);
    narrow_to_float16(halves.data(), values.data(), 1, of_each.data(), count);
    narrow_to_bfloat16(brains.data(), values.data(), of_each.data(), count);
    narrow_to_int8(bytes.data(), values.data(), 0.25F, of_each.data(), count);
    std::vector<float> wide(count);
    widen_float16(wide.data(), halves.data(), 1, count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(wide[i], float16(values[i], of_each[i]));
    widen_bfloat16(wide.data(), brains.data(), count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(wide[i], bfloat16(values[i], of_each[i]));
    widen_int8(wide.data(), bytes.data(), 0.25F, count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(wide[i], int8(values[i], of_each[i]));
  }
}

}  // namespace
}  // namespace dtrain::kernels
