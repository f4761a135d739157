#include "kernels/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dtrain::kernels {
namespace {

std::vector<float> wave(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i)) * 1e-3F;
  return values;
}

TEST(ReduceTest, SumOfSquaresIsADoubleSum) {
  for (const std::size_t n : {0, 1, 1023, 1024, 1025, 50021}) {
    const auto values = wave(n);
    double expected = 0.0;
    for (const float value : values) expected += double{value} * double{value};
    const SumOfSquares result = sum_of_squares_and_nonfinite(values.data(), n);
    EXPECT_NEAR(result.sum, expected, 1e-12 * expected) << n;
    EXPECT_EQ(result.non_finite, 0);
  }
}

TEST(ReduceTest, CountsEachNonFiniteElement) {
  auto values = wave(5000);
  values[3] = std::numeric_limits<float>::infinity();
  values[1500] = std::numeric_limits<float>::quiet_NaN();
  values[4999] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum_of_squares_and_nonfinite(values.data(), values.size()).non_finite, 3);
  const std::vector<double> doubles(values.begin(), values.end());
  EXPECT_EQ(sum_of_squares_and_nonfinite(doubles.data(), doubles.size()).non_finite, 3);
}

TEST(ReduceTest, LargestFloatsAreFinite) {
  const std::vector<float> values(10, std::numeric_limits<float>::max());
  const SumOfSquares result = sum_of_squares_and_nonfinite(values.data(), values.size());
  EXPECT_EQ(result.non_finite, 0);
  EXPECT_TRUE(std::isfinite(result.sum));
}

TEST(ReduceTest, CastsAndScalesInTheWiderType) {
  const auto values = wave(1003);
  std::vector<double> doubles(values.size());
  cast_scale(doubles.data(), values.data(), values.size(), 1.0 / 3.0);
  std::vector<float> floats(values.size());
  cast_scale(floats.data(), doubles.data(), doubles.size(), 3.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(doubles[i], double{values[i]} * (1.0 / 3.0));
    EXPECT_EQ(floats[i], static_cast<float>(doubles[i] * 3.0));
  }
  add_cast_scale(floats.data(), values.data(), values.size(), 0.5);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(doubles[i] * 3.0) + values[i] * 0.5F);
  }
}

}  // namespace
}  // namespace dtrain::kernels
