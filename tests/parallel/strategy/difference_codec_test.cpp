#include "parallel/strategy/difference_codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

std::vector<float> there_and_back(const DifferenceCodec& codec, const std::vector<float>& values,
                                  float factor = 1) {
  std::vector<std::byte> message(codec.bytes(values.size()));
  codec.encode(values, message);
  std::vector<float> sums(values.size(), 0.0F);
  codec.add(message, factor, sums);
  return sums;
}

std::vector<float> random_values(std::size_t count, double size) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, size);
  std::vector<float> values(count);
  for (auto& value : values) value = static_cast<float>(normal(random));
  return values;
}

TEST(DifferenceCodecTest, InEightBitsAValueIsOffByHalfALevelOfItsBlock) {
  const DifferenceCodec codec(ExchangeType::int8);
  auto values = random_values(1000, 1e-3);
  for (std::size_t i = 256; i < 512; ++i) values[i] *= 1e6F;  // a large block hides nothing of others
  const auto back = there_and_back(codec, values);
  for (std::size_t begin = 0; begin < values.size(); begin += DifferenceCodec::kBlock) {
    const auto end = std::min(begin + DifferenceCodec::kBlock, values.size());
    float largest = 0;
    for (auto i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    for (auto i = begin; i < end; ++i) EXPECT_LE(std::abs(back[i] - values[i]), largest / 254 * 1.0001F) << i;
  }
}

TEST(DifferenceCodecTest, InSixteenBitsAValueIsOffByAnEighthBitOfIts) {
  const auto values = random_values(999, 1e-3);
  const auto back = there_and_back(DifferenceCodec(ExchangeType::bfloat16), values);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) / 256) << i;
}

TEST(DifferenceCodecTest, MessagesHaveTheirLength) {
  EXPECT_EQ(DifferenceCodec(ExchangeType::int8).bytes(256), 256U + 4U);
  EXPECT_EQ(DifferenceCodec(ExchangeType::int8).bytes(257), 257U + 8U);
  EXPECT_EQ(DifferenceCodec(ExchangeType::bfloat16).bytes(257), 514U);
}

TEST(DifferenceCodecTest, NothingStaysNothingAndTheLargestIsExact) {
  std::vector<float> values(300, 0.0F);
  EXPECT_EQ(there_and_back(DifferenceCodec(ExchangeType::int8), values), values);
  values[3] = -12.7F;
  EXPECT_FLOAT_EQ(there_and_back(DifferenceCodec(ExchangeType::int8), values)[3], -12.7F);
  values.assign(300, std::numeric_limits<float>::denorm_min());
  for (const float value : there_and_back(DifferenceCodec(ExchangeType::int8), values)) EXPECT_EQ(value, 0);
}

TEST(DifferenceCodecTest, ASignIsKeptAndAFactorApplied) {
  const std::vector<float> values = {127, -127, 64, -1};
  EXPECT_EQ(there_and_back(DifferenceCodec(ExchangeType::int8), values, 0.5F),
            (std::vector<float>{63.5F, -63.5F, 32, -0.5F}));
}

TEST(DifferenceCodecTest, ATieGoesToTheEvenLevel) {
  const std::vector<float> values = {127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F};
  EXPECT_EQ(there_and_back(DifferenceCodec(ExchangeType::int8), values),
            (std::vector<float>{127, 0, 2, 2, 0, -2}));
}

TEST(DifferenceCodecTest, ANumberThatIsNotFiniteIsNotHidden) {
  for (const auto type : {ExchangeType::int8, ExchangeType::bfloat16}) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(600, 1.0F);
      values[300] = bad;
      const auto back = there_and_back(DifferenceCodec(type), values);
      EXPECT_FALSE(std::isfinite(back[300]));
      EXPECT_EQ(back[0], 1.0F) << "another block";
    }
  }
}

TEST(DifferenceCodecTest, NamesAreKnown) {
  EXPECT_EQ(parse_exchange_type("full"), ExchangeType::full);
  EXPECT_EQ(parse_exchange_type("int8"), ExchangeType::int8);
  EXPECT_THROW(parse_exchange_type("int4"), Error);
}

}  // namespace
}  // namespace dtrain::parallel
