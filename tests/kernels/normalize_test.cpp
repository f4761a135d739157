#include "kernels/normalize.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace dtrain::kernels {
namespace {

TEST(NormalizeTest, EveryByteOfEveryChannelFollowsTheFormula) {
  constexpr std::size_t kSamples = 2;
  constexpr std::size_t kChannels = 3;
  constexpr std::size_t kPlane = 257;  // no multiple of a vector
  std::vector<std::uint8_t> bytes(kSamples * kChannels * kPlane);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7);
  const std::array<float, kChannels> mean = {0.4914F, 0.4822F, 0.4465F};
  const std::array<float, kChannels> deviation = {0.247F, 0.2435F, 0.2616F};
  std::vector<float> floats(bytes.size());
  std::vector<double> doubles(bytes.size());
  normalize_u8(floats.data(), bytes.data(), kSamples, kChannels, kPlane, mean.data(), deviation.data());
  normalize_u8(doubles.data(), bytes.data(), kSamples, kChannels, kPlane, mean.data(), deviation.data());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t channel = i / kPlane % kChannels;
    const double expected = (bytes[i] / 255.0 - double{mean[channel]}) / double{deviation[channel]};
    EXPECT_NEAR(doubles[i], expected, 1e-14);
    EXPECT_NEAR(floats[i], expected, 5e-7);
  }
}

TEST(NormalizeTest, FloatsFollowTheFormulaHoweverFarFromZero) {
  const std::vector<float> values = {1000.25F, 1000.5F, 1001.0F, -3.0F, 0.0F, 3.0F};  // two channels of three
  const std::array<float, 2> mean = {1000.5F, 1.0F};
  const std::array<float, 2> deviation = {0.25F, 2.0F};
  std::vector<float> floats(values.size());
  std::vector<double> doubles(values.size());
  normalize_f32(floats.data(), values.data(), 1, 2, 3, mean.data(), deviation.data());
  normalize_f32(doubles.data(), values.data(), 1, 2, 3, mean.data(), deviation.data());
  EXPECT_EQ(doubles, (std::vector<double>{-1, 0, 2, -2, -0.5, 1}));
  EXPECT_EQ(floats, (std::vector<float>{-1, 0, 2, -2, -0.5F, 1}));
}

TEST(NormalizeTest, WithoutStatisticsBytesBecomeZeroToOne) {
  const std::vector<std::uint8_t> bytes = {0, 51, 255};
  std::vector<float> out(3);
  normalize_u8(out.data(), bytes.data(), 1, 1, 3, nullptr, nullptr);
  EXPECT_FLOAT_EQ(out[0], 0.0F);
  EXPECT_FLOAT_EQ(out[1], 0.2F);
  EXPECT_FLOAT_EQ(out[2], 1.0F);
}

}  // namespace
}  // namespace dtrain::kernels
