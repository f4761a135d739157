#include "core/checked_bytes.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dtrain {
namespace {

using Shape = std::vector<std::int64_t>;
constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

TEST(CheckedBytesTest, CountsWhatFits) {
  EXPECT_EQ(checked_bytes(Shape{}, 8), 8);
  EXPECT_EQ(checked_bytes(Shape{3, 4}, 4), 48);
  EXPECT_EQ(checked_bytes(Shape{3, 4}, 4, 48), 48);
  EXPECT_EQ(checked_bytes(Shape{kMost}, 1), kMost);
}

TEST(CheckedBytesTest, RefusesWhatIsTooLargeWrapsOrIsNegative) {
  EXPECT_FALSE(checked_bytes(Shape{3, 4}, 4, 47));
  EXPECT_FALSE(checked_bytes(Shape{1LL << 32, 1LL << 32}, 1));
  EXPECT_FALSE(checked_bytes(Shape{1LL << 31, 1LL << 31, 4}, 4)) << "2^66 bytes would be 0 again";
  EXPECT_FALSE(checked_bytes(Shape{-1, -1}, 4));
  EXPECT_FALSE(checked_bytes(Shape{5, -1}, 4));
  EXPECT_FALSE(checked_bytes(Shape{}, 8, 7));
}

TEST(CheckedBytesTest, WithoutElementsThereAreNoBytesWhateverTheOtherExtents) {
  EXPECT_EQ(checked_bytes(Shape{kMost, 0, kMost}, 8), 0);
  EXPECT_FALSE(checked_bytes(Shape{0, -1}, 8));
}

}  // namespace
}  // namespace dtrain
