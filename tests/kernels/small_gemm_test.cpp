#include "kernels/small_gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

template <class T>
std::vector<T> wave(std::size_t n, double pitch) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(std::sin(pitch * static_cast<double>(i)));
  return values;
}

/// A type, and how wide the vectors are.
template <class T, std::size_t Bytes>
struct Way {
  using Type = T;
  static constexpr std::size_t kBytes = Bytes;
};

template <class W>
class SmallGemmTest : public testing::Test {
 protected:
  void SetUp() override {
    limit_product_vectors(W::kBytes);
    if (product_vector_bytes() != W::kBytes) GTEST_SKIP() << "this processor has no such vectors";
  }
  void TearDown() override { limit_product_vectors(64); }
};
using Ways = testing::Types<Way<float, 16>, Way<double, 16>, Way<float, 32>, Way<double, 32>, Way<float, 64>,
                            Way<double, 64>>;
TYPED_TEST_SUITE(SmallGemmTest, Ways);

TYPED_TEST(SmallGemmTest, ProductsOfRaggedExtentsEqualTheDefinition) {
  using T = typename TypeParam::Type;
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  for (const GemmSize& size : {GemmSize{1, 1, 1},
                               {4, 3, 8},
                               {5, 7, 13},
                               {33, 25, 50},
                               {8, 24, 16},
                               {7, 10, 0},
                               {6, 100, 33},
                               {3, 113, 130},
                               {9, 131, 15},
                               {6, 160, 20}}) {
    const auto left = wave<T>(size.rows * size.depth, 0.7);
    const auto right = wave<T>(size.columns * size.depth, 1.3);
    const auto bias = wave<T>(size.columns, 2.1);
    std::vector<T> out(size.rows * size.columns + 1, T{99});
    multiply_transposed(out.data(), left.data(), right.data(), bias.data(), size);
    std::vector<T> transposed(size.rows * size.columns + 1, T{99});
    multiply(transposed.data(), left.data(), 1, size.rows, right.data(), size);
    const auto before = wave<T>(size.rows * size.columns, 0.4);
    std::vector<T> added(before);
    added.push_back(T{99});
    multiply_onto(added.data(), left.data(), 1, size.rows, right.data(), size);
    for (std::size_t r = 0; r < size.rows; ++r) {
      for (std::size_t c = 0; c < size.columns; ++c) {
        double dot = static_cast<double>(bias[c]);
        double outer = 0.0;
        for (std::size_t d = 0; d < size.depth; ++d) {
          dot += double{left[r * size.depth + d]} * double{right[c * size.depth + d]};
          outer += double{left[d * size.rows + r]} * double{right[d * size.columns + c]};
        }
        EXPECT_NEAR(out[r * size.columns + c], dot, tolerance);
        EXPECT_NEAR(transposed[r * size.columns + c], outer, tolerance);
        EXPECT_NEAR(added[r * size.columns + c], double{before[r * size.columns + c]} + outer, tolerance);
      }
    }
    EXPECT_EQ(out.back(), T{99});  // nothing written behind the end
    EXPECT_EQ(transposed.back(), T{99});
    EXPECT_EQ(added.back(), T{99});
  }
}

TYPED_TEST(SmallGemmTest, ARowsBitsDoNotDependOnTheOthers) {
  using T = typename TypeParam::Type;
  const GemmSize all{11, 10, 37};
  const auto left = wave<T>(all.rows * all.depth, 0.7);
  const auto right = wave<T>(all.columns * all.depth, 1.3);
  std::vector<T> whole(all.rows * all.columns);
  multiply_transposed<T>(whole.data(), left.data(), right.data(), nullptr, all);
  for (std::size_t r = 0; r < all.rows; ++r) {
    std::vector<T> row(all.columns);
    multiply_transposed<T>(row.data(), left.data() + r * all.depth, right.data(), nullptr,
                           {1, all.columns, all.depth});
    for (std::size_t c = 0; c < all.columns; ++c) EXPECT_EQ(row[c], whole[r * all.columns + c]);
  }
}

TYPED_TEST(SmallGemmTest, ColumnSumsAddTheRows) {
  using T = typename TypeParam::Type;
  const std::vector<T> matrix = {1, 2, 3, 10, 20, 30};
  std::vector<T> sums(3, T{-1});
  column_sums(sums.data(), matrix.data(), 2, 3);
  EXPECT_EQ(sums, (std::vector<T>{11, 22, 33}));
}

}  // namespace
}  // namespace dtrain::kernels
