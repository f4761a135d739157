#include "kernels/dropout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace dtrain::kernels {
namespace {

constexpr RandomKey kKey{.seed = 9, .purpose = Purpose::dropout, .major = 3, .minor = 1, .stream = 2};

/// The definition, element by element.
bool is_kept(std::uint64_t index, std::uint32_t threshold) {
  const auto block = philox_block(kKey, index / 8);
  const std::uint32_t word = block[index % 8 / 2];
  return ((index % 2 == 0 ? word : word >> 16) & 0xFFFFU) >= threshold;
}

template <class T>
class DropoutTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DropoutTest, Types);

TYPED_TEST(DropoutTest, FollowsItsDefinition) {
  constexpr std::size_t kCount = 3001;
  std::vector<TypeParam> input(kCount);
  for (std::size_t i = 0; i < kCount; ++i) input[i] = static_cast<TypeParam>(i + 1);
  std::vector<TypeParam> output(kCount);
  dropout(output.data(), input.data(), {.columns = kCount}, kKey, 0.25);
  for (std::size_t i = 0; i < kCount; ++i) {
    const TypeParam kept = input[i] * static_cast<TypeParam>(4.0 / 3.0);
    EXPECT_EQ(output[i], is_kept(i, 16384) ? kept : TypeParam{0}) << i;
  }
}

TYPED_TEST(DropoutTest, KeepsShareAndMean) {
  constexpr std::size_t kCount = 400000;
  for (const double probability : {0.1, 0.5, 0.9}) {
    std::vector<TypeParam> values(kCount, TypeParam{1});
    dropout(values.data(), values.data(), {.columns = kCount}, kKey, probability);
    const auto dropped = std::ranges::count(values, TypeParam{0});
    EXPECT_NEAR(static_cast<double>(dropped) / kCount, probability, 0.004);
    double sum = 0.0;
    for (const TypeParam value : values) sum += static_cast<double>(value);
    EXPECT_NEAR(sum / kCount, 1.0, 0.02);
  }
}

TYPED_TEST(DropoutTest, SlicesOfRowsAndColumnsEqualTheWhole) {
  constexpr std::size_t kRows = 13;
  constexpr std::size_t kColumns = 37;
  std::vector<TypeParam> input(kRows * kColumns, TypeParam{2});
  std::vector<TypeParam> whole(input.size());
  dropout(whole.data(), input.data(), {.columns = input.size()}, kKey, 0.5);
  for (const std::size_t split : {1, 8, 19, 36}) {  // left and right part of every row
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, split}, {split, kColumns}}) {
      const std::size_t width = end - begin;
      std::vector<TypeParam> part(kRows * width, TypeParam{2});
      dropout(part.data(), part.data(),
              {.first_index = begin, .rows = kRows, .columns = width, .row_stride = kColumns}, kKey, 0.5);
      for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t c = 0; c < width; ++c) {
          EXPECT_EQ(part[r * width + c], whole[r * kColumns + begin + c]);
        }
      }
    }
  }
}

TYPED_TEST(DropoutTest, ProbabilityZeroChangesNothing) {
  std::vector<TypeParam> values(100, TypeParam{3});
  dropout(values.data(), values.data(), {.columns = 100}, kKey, 0.0);
  EXPECT_EQ(std::ranges::count(values, TypeParam{3}), 100);
}

}  // namespace
}  // namespace dtrain::kernels
