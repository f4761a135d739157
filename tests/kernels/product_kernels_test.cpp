// How products with epilogues are laid out for a library in Fortran's order, without one: a plain
// column-major product stands in for it.
#include "kernels/fused/product_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace dtrain::kernels {
namespace {

std::vector<double> drawn(std::size_t n, std::uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(n);
  for (double& value : values) value = normal(bits);
  return values;
}

/// D = op(A) B as a library reads `of`.
std::vector<double> multiplied(const ColumnProduct& of, const std::vector<double>& a,
                               const std::vector<double>& b) {
  std::vector<double> d(static_cast<std::size_t>(of.ldd * of.n));
  for (std::int64_t column = 0; column < of.n; ++column) {
    for (std::int64_t row = 0; row < of.m; ++row) {
      double sum = 0;
      for (std::int64_t k = 0; k < of.k; ++k) {
        const auto from = of.transposes_a ? row * of.lda + k : k * of.lda + row;
        sum += a.at(static_cast<std::size_t>(from)) * b.at(static_cast<std::size_t>(column * of.ldb + k));
      }
      d.at(static_cast<std::size_t>(column * of.ldd + row)) = sum;
    }
  }
  return d;
}

TEST(ProductKernelsTest, ColumnMajorProductsAreTheRowMajorOnesOfAPerceptron) {
  const InnerProduct of{5, 3, 7};
  const auto x = drawn(5 * 3, 1);
  const auto weight = drawn(7 * 3, 2);
  const auto before = multiplied(product_with_weight(of), weight, x);
  ASSERT_EQ(before.size(), 5U * 7U);
  const auto of_output = drawn(5 * 3, 3);
  const auto outer = drawn(3 * 7, 4);
  const auto gradient = multiplied(product_with_outer(of), outer, of_output);
  ASSERT_EQ(gradient.size(), 5U * 7U);
  for (std::size_t r = 0; r < 5; ++r) {
    for (std::size_t i = 0; i < 7; ++i) {
      double forward = 0;
      double back = 0;
      for (std::size_t c = 0; c < 3; ++c) {
        forward += x[r * 3 + c] * weight[i * 3 + c];
        back += of_output[r * 3 + c] * outer[c * 7 + i];
      }
      EXPECT_DOUBLE_EQ(before[r * 7 + i], forward);
      EXPECT_DOUBLE_EQ(gradient[r * 7 + i], back);
    }
  }
}

TEST(ProductKernelsTest, ABiasIsAddedAlongTheRowsOfD) {
  const auto of = product_with_weight({5, 3, 7});
  EXPECT_EQ(of.m, 7) << "its length";
  EXPECT_EQ(of.n, 5);
  EXPECT_EQ(product_with_outer({5, 3, 7}).m, 7) << "its gradient is the sum over n";
}

TEST(ProductKernelsTest, EpiloguesAreAskedForHalfPrecisionOnWholeVectors) {
  alignas(16) const std::uint16_t memory[16] = {};
  const InnerProduct fits{4096, 768, 3072};
  EXPECT_TRUE(takes_epilogue(fits, Element::bfloat16, {memory, memory + 8}));
  EXPECT_TRUE(takes_epilogue({1, 8, 8}, Element::float16, {memory}));
  EXPECT_FALSE(takes_epilogue(fits, Element::float32, {memory}));
  EXPECT_FALSE(takes_epilogue({4096, 764, 3072}, Element::bfloat16, {memory}));
  EXPECT_FALSE(takes_epilogue({4096, 768, 3071}, Element::bfloat16, {memory}));
  EXPECT_FALSE(takes_epilogue({0, 768, 3072}, Element::bfloat16, {memory}));
  EXPECT_FALSE(takes_epilogue(fits, Element::bfloat16, {memory, memory + 4})) << "8 bytes off";
}

}  // namespace
}  // namespace dtrain::kernels
