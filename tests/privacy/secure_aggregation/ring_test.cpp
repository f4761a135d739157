#include "privacy/secure_aggregation/ring.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

TEST(RingTest, MaskedVectorsAddUpToTheSumBitForBit) {
  constexpr std::size_t kClients = 5;
  constexpr std::size_t kValues = 10001;  // more than one piece of the stream
  const Ring ring({.largest = 2, .fraction_bits = 24, .largest_weight = 1000, .clients = kClients});
  std::vector<KeyPair> pairs(kClients);
  for (auto& pair : pairs) pair = KeyPair::random();
  std::vector<std::uint64_t> expected(kValues, 0);
  std::vector<std::uint64_t> sum(kValues, 0);
  std::int64_t weights = 0;
  std::vector<double> mean(kValues, 0.0);
  for (std::size_t client = 0; client < kClients; ++client) {
    const auto weight = static_cast<std::int64_t>(7 * client + 1);
    weights += weight;
    std::vector<double> values(kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      values[i] = 2 * std::sin(static_cast<double>(i * (client + 1)));
      mean[i] += values[i] * static_cast<double>(weight);
    }
    auto encoded = ring.encoded(values, weight);
    for (std::size_t i = 0; i < kValues; ++i) expected[i] += encoded[i];
    const auto plain = encoded;
    for (std::size_t other = 0; other < kClients; ++other) {
      if (other == client) continue;
      add_mask(encoded, agreed_secret(pairs[client], pairs[other].open, "mask"), 3,
               client < other ? Sign::plus : Sign::minus);
    }
    EXPECT_NE(encoded, plain);
    for (std::size_t i = 0; i < kValues; ++i) sum[i] += encoded[i];
  }
  EXPECT_EQ(sum, expected);
  const auto decoded = ring.decoded(sum, weights);
  for (std::size_t i = 0; i < kValues; ++i)
    EXPECT_NEAR(decoded[i], mean[i] / static_cast<double>(weights), std::ldexp(0.5, -24) + 1e-15);
}

TEST(RingTest, MasksAreUniformAndOfTheWholeSeed) {
  std::vector<std::uint64_t> mask(1 << 14, 0);
  const auto seed = Secret::random();
  add_mask(mask, seed, 1, Sign::plus);
  double ones = 0;
  for (const auto word : mask) ones += std::popcount(word);
  const double bits = 64.0 * (1 << 14);
  EXPECT_NEAR(ones, bits / 2, 5 * std::sqrt(bits) / 2);
  for (const std::size_t changed : {0, 4, 31}) {  // also beyond its first 32 bits
    Bytes other(seed.bytes().begin(), seed.bytes().end());
    other[changed] ^= std::byte{1};
    std::vector<std::uint64_t> others(1 << 14, 0);
    add_mask(others, Secret(other), 1, Sign::plus);
    EXPECT_NE(others, mask) << changed;
  }
  std::vector<std::uint64_t> later(1 << 14, 0);
  add_mask(later, seed, 2, Sign::plus);
  EXPECT_NE(later, mask);
  add_mask(mask, seed, 1, Sign::minus);
  EXPECT_EQ(mask, std::vector<std::uint64_t>(1 << 14, 0));
}

TEST(RingTest, ASumThatCouldWrapAroundIsRefused) {
  const Ring::Extents wide{.largest = 1, .fraction_bits = 40, .largest_weight = 1 << 10, .clients = 1 << 10};
  EXPECT_NO_THROW(Ring{wide});
  auto wider = wide;
  wider.clients = 1 << 14;
  EXPECT_THROW(Ring{wider}, Error);
  wider = wide;
  wider.fraction_bits = 50;
  EXPECT_THROW(Ring{wider}, Error);
  // The largest sum that is allowed is decoded as it is.
  const Ring ring(wide);
  const std::vector<double> largest = {1, -1};
  const auto one = ring.encoded(largest, 1 << 10);
  std::vector<std::uint64_t> sum = {one[0] << 10, one[1] << 10};
  EXPECT_EQ(ring.decoded(sum, std::int64_t{1} << 20), largest);
}

TEST(RingTest, ValuesBeyondTheClipAreNotCutInSilence) {
  const Ring ring({.largest = 1, .clients = 3});
  for (const double value : {1.0000001, -2.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THROW(ring.encoded(std::vector<double>{value}, 1), Error) << value;
  EXPECT_THROW(ring.encoded(std::vector<double>{0.5}, 2), Error) << "a weight beyond the largest";
}

}  // namespace
}  // namespace dtrain::privacy
