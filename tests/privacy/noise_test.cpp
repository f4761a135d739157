#include "privacy/noise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.hpp"
#include "privacy/keystream.hpp"
#include "privacy/normal_floats.hpp"
#include "privacy/normal_numbers.hpp"

namespace dtrain::privacy {
namespace {

/// Mean, variance, and share beyond 3 of many numbers; `Number`: their type.
template <class Number>
void expect_standard_normal(Noise& noise) {
  constexpr std::size_t kCount = (1 << 18) + 1;
  std::vector<Number> numbers(kCount, 0);
  noise.add(std::span(numbers), 1, 1, 0);
  const std::vector<double> values(numbers.begin(), numbers.end());
  double mean = 0;
  double squares = 0;
  double beyond = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    mean += values[i] / kCount;
    squares += values[i] * values[i] / kCount;
    beyond += std::abs(values[i]) > 3 ? 1.0 / kCount : 0;
    if (i > 0) neighbours += values[i] * values[i - 1] / kCount;
  }
  // Five standard errors.
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(beyond, 0.0026998, 5 * std::sqrt(0.0027 / kCount));
  EXPECT_NEAR(neighbours, 0, 5 / std::sqrt(kCount));
}

TEST(NoiseTest, SeededNoiseIsStandardNormal) {
  expect_standard_normal<float>(*make_noise(NoiseSource::seeded, 7));
  expect_standard_normal<double>(*make_noise(NoiseSource::seeded, 7));
}
TEST(NoiseTest, SecureNoiseIsStandardNormal) {
  expect_standard_normal<float>(*make_noise(NoiseSource::secure, 7));
  expect_standard_normal<double>(*make_noise(NoiseSource::secure, 7));
}

TEST(NoiseTest, SeededNoiseOfAPartIsThatOfTheWhole) {
  const auto noise = make_noise(NoiseSource::seeded, 3);
  std::vector<float> whole(5101, 1.0F);
  noise->add(std::span(whole), 2, 5, 0);
  for (const std::int64_t cut : {0, 1, 50, 51, 4096, 4097, 5100}) {
    std::vector<float> parts(5101, 1.0F);
    noise->add(std::span(parts).first(static_cast<std::size_t>(cut)), 2, 5, 0);
    noise->add(std::span(parts).subspan(static_cast<std::size_t>(cut)), 2, 5, cut);
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST(NoiseTest, StepsAndSeedsHaveNumbersOfTheirOwn) {
  const auto of = [](std::uint64_t seed, std::int64_t step) {
    std::vector<double> values(4, 0.0);
    make_noise(NoiseSource::seeded, seed)->add(std::span(values), 1, step, 0);
    return values;
  };
  EXPECT_NE(of(1, 1), of(1, 2));
  EXPECT_NE(of(1, 1), of(2, 1));
  EXPECT_NE(of(1, 1), of(1 + (std::uint64_t{1} << 32), 1)) << "a seed has 64 bits";
  EXPECT_NE(of(1 + (std::uint64_t{1} << 32), 1), of(2 + (std::uint64_t{1} << 32), 1));
  EXPECT_NE(of(1, 1), of(1, 1 + (std::int64_t{1} << 32)));
}

TEST(NoiseTest, SecureNoiseNeverRepeats) {
  const auto noise = make_noise(NoiseSource::secure, 1);
  const auto other = make_noise(NoiseSource::secure, 1);
  std::vector<double> one(8, 0.0);
  std::vector<double> two(8, 0.0);
  std::vector<double> three(8, 0.0);
  noise->add(std::span(one), 1, 1, 0);
  noise->add(std::span(two), 1, 1, 0);
  other->add(std::span(three), 1, 1, 0);
  EXPECT_NE(one, two);
  EXPECT_NE(one, three);
  EXPECT_NE(secret_seed(), secret_seed());
}

TEST(NormalNumbersTest, AreThoseOfBoxAndMuller) {
  std::vector<std::uint64_t> words = {0, 0, ~std::uint64_t{0}, ~std::uint64_t{0}, 0, std::uint64_t{1} << 62};
  for (std::uint64_t i = 1; i < 2000; ++i) words.push_back(i * 0x9E3779B97F4A7C15U);
  words.resize(words.size() / 2 * 2);
  std::vector<double> values(words.size());
  normal_numbers(words.data(), values.data(), words.size() / 2);
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const double u = 1 - static_cast<double>(words[i] >> 12) * 0x1p-52;
    const double angle = 2 * std::numbers::pi * static_cast<double>(words[i + 1] >> 12) * 0x1p-52;
    EXPECT_NEAR(values[i], std::sqrt(-2 * std::log(u)) * std::cos(angle), 1e-13);
    EXPECT_NEAR(values[i + 1], std::sqrt(-2 * std::log(u)) * std::sin(angle), 1e-13);
  }
}

TEST(NormalFloatsTest, AreThoseOfBoxAndMuller) {
  std::vector<std::uint64_t> lengths = {0, ~std::uint64_t{0}, std::uint64_t{1} << 12};
  std::vector<std::uint32_t> turns = {0, 1U << 31, ~std::uint32_t{0}};
  for (std::uint64_t i = 1; i < 3000; ++i) {
    lengths.push_back(i * 0x9E3779B97F4A7C15U);
    turns.push_back(static_cast<std::uint32_t>(i * 0x9E3779B9U));
  }
  const auto pairs = lengths.size();
  std::vector<float> values(2 * pairs, 0.0F);
  add_normal_floats(lengths.data(), turns.data(), 1, values.data(), pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double u = 1 - static_cast<double>(lengths[i] >> 12) * 0x1p-52;
    const double angle = 2 * std::numbers::pi * static_cast<double>(turns[i]) * 0x1p-32;
    EXPECT_NEAR(values[i], std::sqrt(-2 * std::log(u)) * std::cos(angle), 1e-6) << i;
    EXPECT_NEAR(values[pairs + i], std::sqrt(-2 * std::log(u)) * std::sin(angle), 1e-6) << i;
  }
}

TEST(NoiseTest, SecureNoiseOfAnyLengthReachesEachElementOnce) {
  const auto noise = make_noise(NoiseSource::secure, 1);
  for (const std::size_t count : {0, 1, 2, 3, 4095, 4096, 4097, 4099}) {
    std::vector<float> values(count + 1, 0.0F);
    noise->add(std::span(values).first(count), 2, 1, 0);
    // A number is 0 where the turn is a whole number of quarters: by chance in one of 10^5 runs.
    for (std::size_t i = 0; i < count; ++i) EXPECT_NE(values[i], 0.0F) << i << " of " << count;
    EXPECT_EQ(values[count], 0.0F) << "behind " << count;
  }
}

TEST(NoiseTest, UnknownSourcesAreRefused) { EXPECT_THROW(parse_noise_source("random"), Error); }

/// RFC 8439, appendix A.1, test vectors 1 (block counter 0) and 2 (block counter 1): key and nonce zero.
TEST(KeystreamTest, IsChaCha20) {
  Keystream keys(std::array<std::byte, 32>{});
  std::vector<std::byte> bytes(128);
  keys.fill(bytes);
  const std::vector<int> first = {0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90,
                                  0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28};
  const std::vector<int> second = {0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a,
                                   0x98, 0xba, 0x97, 0x7c, 0x73, 0x2d, 0x08, 0x0d};
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), first[i]) << i;
    EXPECT_EQ(std::to_integer<int>(bytes[64 + i]), second[i]) << i;
  }
}

}  // namespace
}  // namespace dtrain::privacy
