#include "kernels/fill.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dtrain::kernels {
namespace {

constexpr RandomKey kKey{
    .seed = 1, .purpose = Purpose::initialisation, .stream = stream_of("input_fc.weight")};

TEST(FillTest, AnySliceEqualsThatPartOfTheWhole) {
  constexpr std::size_t kCount = 1000;
  std::vector<float> uniform(kCount);
  std::vector<float> normal(kCount);
  fill_uniform(uniform.data(), kCount, kKey, 0, -0.5F, 0.5F);
  fill_normal(normal.data(), kCount, kKey, 0, 1.0F, 2.0F);
  for (const std::size_t begin : {0, 1, 2, 3, 257, 999}) {
    std::vector<float> slice(kCount - begin);
    fill_uniform(slice.data(), slice.size(), kKey, begin, -0.5F, 0.5F);
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(), uniform.begin() + static_cast<std::ptrdiff_t>(begin)));
    fill_normal(slice.data(), slice.size(), kKey, begin, 1.0F, 2.0F);
    EXPECT_TRUE(std::equal(slice.begin(), slice.end(), normal.begin() + static_cast<std::ptrdiff_t>(begin)));
  }
}

TEST(FillTest, DoublesAreTheFloats) {
  std::vector<float> floats(100);
  std::vector<double> doubles(100);
  fill_uniform(floats.data(), floats.size(), kKey, 5, -0.1F, 0.1F);
  fill_uniform(doubles.data(), doubles.size(), kKey, 5, -0.1F, 0.1F);
  for (std::size_t i = 0; i < floats.size(); ++i) EXPECT_EQ(doubles[i], static_cast<double>(floats[i]));
  fill_normal(floats.data(), floats.size(), kKey, 5, 0.0F, 0.1F);
  fill_normal(doubles.data(), doubles.size(), kKey, 5, 0.0F, 0.1F);
  for (std::size_t i = 0; i < floats.size(); ++i) EXPECT_EQ(doubles[i], static_cast<double>(floats[i]));
}

struct Moments {
  double mean = 0.0;
  double variance = 0.0;
};

Moments moments_of(const std::vector<double>& values) {
  Moments moments;
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  for (const double value : values) {
    moments.variance += (value - moments.mean) * (value - moments.mean) / static_cast<double>(values.size());
  }
  return moments;
}

TEST(FillTest, UniformNumbersCoverTheirRangeEvenly) {
  std::vector<double> values(200000);
  fill_uniform(values.data(), values.size(), kKey, 0, -2.0F, 4.0F);
  EXPECT_GE(*std::ranges::min_element(values), -2.0);
  EXPECT_LE(*std::ranges::max_element(values), 4.0);
  const Moments moments = moments_of(values);
  EXPECT_NEAR(moments.mean, 1.0, 0.02);
  EXPECT_NEAR(moments.variance, 3.0, 0.03);  // 6^2 / 12
}

TEST(FillTest, NormalNumbersHaveTheirMeanDeviationAndTails) {
  std::vector<double> values(200000);
  fill_normal(values.data(), values.size(), kKey, 0, 1.0F, 2.0F);
  const Moments moments = moments_of(values);
  EXPECT_NEAR(moments.mean, 1.0, 0.02);
  EXPECT_NEAR(std::sqrt(moments.variance), 2.0, 0.02);
  const auto beyond = std::ranges::count_if(values, [](double x) { return std::abs(x - 1.0) > 4.0; });
  EXPECT_NEAR(static_cast<double>(beyond) / 200000.0, 0.0455, 0.003);  // outside two deviations
}

}  // namespace
}  // namespace dtrain::kernels
