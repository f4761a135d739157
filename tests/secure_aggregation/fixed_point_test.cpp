#include "secure_aggregation/fixed_point.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

TEST(FixedPointTest, AValueBecomesAnIntegerTimesItsWeight) {
  for (const int ring_bits : {32, 64}) {
    const FixedPoint format{.ring_bits = ring_bits, .value_bits = 8, .weight_bits = 4, .largest = 2};
    const std::vector<float> values = {0, 2, -2, 1, -0.01F, 0.008F};
    const auto encoded = encode(format, values, 3, "round 1");
    EXPECT_EQ(encoded.saturated, 0U);
    const std::vector<std::int64_t> expected = {0,  381, -381, 192,
                                                -3, 3,   3};  // 127 = 2; the last is the weight
    ASSERT_EQ(encoded.words.size(), expected.size() * static_cast<std::size_t>(ring_bits / 8));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(element(format, encoded.words, i), expected[i]) << i;
    EXPECT_NEAR(number(format, 381, 3), 2, 1e-12);
  }
}

TEST(FixedPointTest, ValuesBeyondTheLargestAreCounted) {
  const FixedPoint format{.value_bits = 8, .largest = 1};
  const auto infinity = std::numeric_limits<float>::infinity();
  const auto encoded =
      encode(format, std::vector<float>{1, -1, 1.001F, -3, infinity, -infinity, 0.5F}, 1, "round 1");
  EXPECT_EQ(encoded.saturated, 4U);
  EXPECT_EQ(element(format, encoded.words, 2), 127);
  EXPECT_EQ(element(format, encoded.words, 3), -127);
  EXPECT_EQ(element(format, encoded.words, 4), 127);
  EXPECT_EQ(element(format, encoded.words, 5), -127);
}

TEST(FixedPointTest, NanAndWeightsOutOfRangeAreRefused) {
  const FixedPoint format{.weight_bits = 4};
  const auto expect_refused = [&](float value, std::uint64_t weight, const std::string& sentence) {
    try {
      encode(format, std::vector<float>{value}, weight, "round 7, masked inputs");
      ADD_FAILURE() << sentence;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), sentence);
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  };
  expect_refused(std::nanf(""), 1,
                 "round 7, masked inputs: a value is not a number; leave this client out of the round");
  const std::string weight =
      "round 7, masked inputs: a weight is not in [1, 15]; give weights more bits, or scale them";
  expect_refused(0, 0, weight);
  expect_refused(0, 16, weight);
}

TEST(FixedPointTest, TheRingIsProvedWideEnough) {
  const auto fits = [](FixedPoint format, int clients, double noise = 0) {
    try {
      format.validate(clients, noise);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return false;
    }
  };
  EXPECT_TRUE(fits({.ring_bits = 32, .value_bits = 16, .weight_bits = 9}, 128));
  EXPECT_FALSE(fits({.ring_bits = 32, .value_bits = 16, .weight_bits = 9}, 129));
  EXPECT_TRUE(fits({.ring_bits = 64, .value_bits = 16, .weight_bits = 9}, 129));
  EXPECT_TRUE(fits({.ring_bits = 64, .value_bits = 32, .weight_bits = 25}, 128));
  EXPECT_FALSE(fits({.ring_bits = 64, .value_bits = 32, .weight_bits = 26}, 128));
  EXPECT_TRUE(fits({.ring_bits = 32, .value_bits = 16, .weight_bits = 0}, 1024, 1 << 20));
  EXPECT_FALSE(
      fits({.ring_bits = 32, .value_bits = 22, .weight_bits = 0}, 1024, 1 << 20));  // full without noise
  EXPECT_FALSE(fits({.ring_bits = 48}, 4));
  EXPECT_FALSE(fits({.value_bits = 1}, 4));
  EXPECT_FALSE(fits({.weight_bits = -1}, 4));
  EXPECT_FALSE(fits({.largest = 0}, 4));
  EXPECT_FALSE(fits({.largest = std::nan("")}, 4));
}

TEST(FixedPointTest, TheLargestSumsJustFit) {
  for (const int clients : {2, 3, 4, 7, 8, 100, 128}) {
    const FixedPoint format{.ring_bits = 32, .value_bits = 16, .weight_bits = 9};
    format.validate(clients, 0);
    const auto most = format.largest_integer() * static_cast<std::int64_t>(format.largest_weight()) * clients;
    EXPECT_LE(most, std::numeric_limits<std::int32_t>::max()) << clients;
  }
}

}  // namespace
}  // namespace dtrain::secure_aggregation
