#include "kernels/bag.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace dtrain::kernels {
namespace {

constexpr std::size_t kColumns = 19;  // not a multiple of a vector
constexpr std::int64_t kRows = 7;

std::vector<double> table() {
  std::vector<double> values(kRows * kColumns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 13) - 5.0;
  return values;
}

// Six real words with one twice, a word between paddings, nothing; the last column is not read.
constexpr std::array<std::int32_t, 24> kIds = {1, 2, 3, 4, 6, 2, 0, 9, 0, 5, 0, 0,
                                               0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9};
constexpr Bags kBags{kIds.data(), 3, 7, 8};

TEST(BagTest, ScalesAreOneOverTheRealWords) {
  std::vector<double> scales(3);
  EXPECT_TRUE(bag_scales(scales.data(), kBags, kRows));
  EXPECT_EQ(scales, (std::vector<double>{1.0 / 6.0, 1.0, 0.0}));
}

TEST(BagTest, IdsOutsideTheTableAreFound) {
  std::vector<float> scales(3);
  EXPECT_FALSE(bag_scales(scales.data(), kBags, 6));
  const std::array<std::int32_t, 2> negative = {1, -1};
  EXPECT_FALSE(bag_scales(scales.data(), {negative.data(), 1, 2, 2}, kRows));
}

TEST(BagTest, MeansAreSumsOfRowsTimesScale) {
  const auto rows = table();
  const std::vector<double> scales = {0.5, 2.0, 0.0};
  std::vector<double> means(3 * kColumns, 99.0);
  bag_means(means.data(), rows.data(), scales.data(), kBags, kColumns);
  for (std::size_t c = 0; c < kColumns; ++c) {
    double sum = 0;
    for (const std::size_t id : {1U, 2U, 3U, 4U, 6U, 2U}) sum += rows[id * kColumns + c];
    EXPECT_DOUBLE_EQ(means[c], 0.5 * sum);
    EXPECT_DOUBLE_EQ(means[kColumns + c], 2.0 * rows[5 * kColumns + c]);
    EXPECT_EQ(means[2 * kColumns + c], 0.0);
  }
}

TEST(BagTest, BackwardAddsToEachRowOncePerUse) {
  const std::vector<double> scales = {0.5, 2.0, 0.0};
  std::vector<double> gradient(3 * kColumns);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<double>(i);
  std::vector<double> sums(kRows * kColumns, 1.0);
  bag_means_backward(sums.data(), gradient.data(), scales.data(), kBags, kColumns);
  const std::array<double, kRows> uses = {0, 1, 2, 1, 1, 0, 1};  // of the first bag
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t c = 0; c < kColumns; ++c) {
      const double from_second = row == 5 ? 2.0 * gradient[kColumns + c] : 0.0;
      EXPECT_DOUBLE_EQ(sums[row * kColumns + c], 1.0 + uses[row] * 0.5 * gradient[c] + from_second);
    }
  }
}

TEST(BagTest, SumsOfAnyNumberOfRows) {
  const auto rows = table();
  for (const std::size_t count : {0U, 1U, 4U, 6U}) {
    std::vector<const double*> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(rows.data() + i * kColumns);
    std::vector<double> sum(kColumns, 99.0);
    sum_rows<double>(sum.data(), chosen, kColumns);
    for (std::size_t c = 0; c < kColumns; ++c) {
      double expected = 0;
      for (std::size_t i = 0; i < count; ++i) expected += rows[i * kColumns + c];
      EXPECT_EQ(sum[c], expected) << count << " rows";
    }
  }
}

}  // namespace
}  // namespace dtrain::kernels
