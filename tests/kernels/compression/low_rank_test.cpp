#include "kernels/compression/low_rank.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace dtrain::kernels {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

constexpr LowRankSize kSizes[] = {{1, 1, 1}, {3, 5, 2}, {17, 33, 3}, {40, 100, 1}, {8, 16, 8}};

TEST(LowRankTest, ProductsAreTheSumsOfTheirFormula) {
  for (const auto& size : kSizes) {
    const auto [rows, columns, rank] = size;
    const auto matrix = random_values(rows * columns, 1);
    const auto left = random_values(rows * rank, 2);
    const auto right = random_values(rank * columns, 3);
    std::vector<float> by_few(rows * rank);
    std::vector<float> few_by(rank * columns);
    auto added = matrix;
    multiply_by_few(by_few.data(), matrix.data(), right.data(), size);
    multiply_few_by(few_by.data(), left.data(), matrix.data(), size);
    add_low_rank(added.data(), left.data(), right.data(), -0.5F, size);
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::size_t c = 0; c < columns; ++c)
          sum += double{matrix[r * columns + c]} * double{right[k * columns + c]};
        EXPECT_NEAR(by_few[r * rank + k], sum, 1e-4);
      }
      for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r)
          sum += double{left[r * rank + k]} * double{matrix[r * columns + c]};
        EXPECT_NEAR(few_by[k * columns + c], sum, 1e-4);
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        double expected = matrix[r * columns + c];
        for (std::size_t k = 0; k < rank; ++k)
          expected -= 0.5 * double{left[r * rank + k]} * double{right[k * columns + c]};
        EXPECT_NEAR(added[r * columns + c], expected, 1e-4);
      }
    }
  }
}

double product(const std::vector<float>& vectors, std::size_t rank, std::size_t i, std::size_t j) {
  double sum = 0;
  for (std::size_t r = 0; r < vectors.size() / rank; ++r)
    sum += double{vectors[r * rank + i]} * double{vectors[r * rank + j]};
  return sum;
}

void expect_orthonormal(const std::vector<float>& vectors, std::size_t rank) {
  for (std::size_t i = 0; i < rank; ++i) {
    for (std::size_t j = 0; j < rank; ++j)
      EXPECT_NEAR(product(vectors, rank, i, j), i == j ? 1 : 0, 1e-5) << i << ", " << j;
  }
}

TEST(LowRankTest, OrthonormalColumnsSpanWhatTheOldOnesDid) {
  for (const std::size_t rank : {1U, 2U, 5U, 32U}) {
    const std::size_t rows = 64;
    const auto before = random_values(rows * rank, 4);
    auto after = before;
    orthonormalise(after.data(), rows, rank, 1);
    expect_orthonormal(after, rank);
    for (std::size_t i = 0; i < rank; ++i) {  // a column without its part in the span is nothing
      std::vector<double> rest(rows);
      for (std::size_t r = 0; r < rows; ++r) rest[r] = before[r * rank + i];
      for (std::size_t k = 0; k < rank; ++k) {
        double common = 0;
        for (std::size_t r = 0; r < rows; ++r) common += double{before[r * rank + i]} * after[r * rank + k];
        for (std::size_t r = 0; r < rows; ++r) rest[r] -= common * after[r * rank + k];
      }
      for (const double value : rest) EXPECT_NEAR(value, 0, 1e-4);
    }
  }
}

TEST(LowRankTest, ColumnsThatDependOnOthersAreReplaced) {
  const std::size_t rows = 20;
  const std::size_t rank = 4;
  auto vectors = random_values(rows * rank, 5);
  for (std::size_t r = 0; r < rows; ++r) {
    vectors[r * rank + 1] = 2 * vectors[r * rank];
    vectors[r * rank + 3] = 0;
  }
  auto again = vectors;
  orthonormalise(vectors.data(), rows, rank, 9);
  expect_orthonormal(vectors, rank);
  orthonormalise(again.data(), rows, rank, 9);
  EXPECT_EQ(vectors, again) << "the same seed";
}

TEST(LowRankTest, NearlyDependentAndVerySmallAndSquareOnes) {
  auto near = random_values(50 * 2, 6);
  for (std::size_t r = 0; r < 50; ++r) near[r * 2 + 1] = near[r * 2] + 1e-4F * near[r * 2 + 1];
  orthonormalise(near.data(), 50, 2, 1);
  expect_orthonormal(near, 2);
  auto small = random_values(50 * 2, 7);
  for (auto& value : small) value *= 1e-18F;
  orthonormalise(small.data(), 50, 2, 1);
  expect_orthonormal(small, 2);
  auto square = random_values(6 * 6, 8);
  orthonormalise(square.data(), 6, 6, 1);
  expect_orthonormal(square, 6);
  std::vector<float> nothing(6 * 6, 0.0F);
  orthonormalise(nothing.data(), 6, 6, 1);
  expect_orthonormal(nothing, 6);
}

}  // namespace
}  // namespace dtrain::kernels
