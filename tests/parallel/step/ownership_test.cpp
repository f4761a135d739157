#include "parallel/step/ownership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

std::vector<std::int64_t> counts(const Ownership& owned) {
  std::vector<std::int64_t> all;
  for (const Range& of_rank : owned) all.push_back(of_rank.size());
  return all;
}

void expect_cover(const Ownership& owned, std::int64_t micro_batches) {
  std::int64_t next = 0;
  for (const Range& of_rank : owned) {
    EXPECT_EQ(of_rank.begin, next);
    EXPECT_GE(of_rank.size(), 1);
    next = of_rank.end;
  }
  EXPECT_EQ(next, micro_batches);
}

/// The least time of a step, of all ways to deal `left` micro-batches to the ranks from `rank` on.
double best(int left, std::size_t rank, int most, const std::vector<double>& seconds) {
  if (rank == seconds.size()) return left == 0 ? 0 : std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (int count = 1; count <= std::min(left, most); ++count)
    least = std::min(least, std::max(count * seconds[rank], best(left - count, rank + 1, most, seconds)));
  return least;
}

TEST(OwnershipTest, EqualRanksOwnEquallyMuch) {
  EXPECT_EQ(counts(ownership_by_speed(16, std::vector<double>(4, 0.2))),
            (std::vector<std::int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(counts(even_ownership(16, 4)), (std::vector<std::int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(counts(even_ownership(3, 2)), (std::vector<std::int64_t>{1, 2}));
  expect_cover(even_ownership(19, 7), 19);
}

TEST(OwnershipTest, ARankThatIsFourTimesAsSlowOwnsAQuarterAsMuch) {
  EXPECT_EQ(counts(ownership_by_speed(16, std::vector<double>{1, 1, 1, 4})),
            (std::vector<std::int64_t>{5, 5, 5, 1}));
  EXPECT_EQ(counts(ownership_by_speed(52, std::vector<double>{4, 1, 1, 1})),
            (std::vector<std::int64_t>{4, 16, 16, 16}));
}

TEST(OwnershipTest, NoOtherOneIsDoneSooner) {
  for (const int micro_batches : {4, 7, 11, 16, 20}) {
    for (const auto& seconds :
         std::vector<std::vector<double>>{{1, 1, 1, 4}, {1, 2, 3, 4}, {5, 1, 1, 1}, {1, 1.1, 0.9, 1.05}}) {
      const auto owned = ownership_by_speed(micro_batches, seconds);
      expect_cover(owned, micro_batches);
      EXPECT_DOUBLE_EQ(slowest_seconds(owned, seconds),
                       best(micro_batches, 0, most_owned(micro_batches, 4), seconds))
          << micro_batches;
    }
  }
}

TEST(OwnershipTest, NoRankOwnsMoreThanTwiceItsEvenShare) {
  EXPECT_EQ(counts(ownership_by_speed(16, std::vector<double>{1, 1e6, 1e6, 1e6}))[0], 8);
  EXPECT_EQ(most_owned(16, 4), 8);
  EXPECT_EQ(most_owned(8, 2), 7) << "the other one has one";
  EXPECT_EQ(most_owned(8, 1), 8);
  EXPECT_EQ(most_owned(3, 4), 1);
}

TEST(OwnershipTest, FewerMicroBatchesThanRanksAreRefused) {
  EXPECT_THROW(ownership_by_speed(3, std::vector<double>(4, 1.0)), Error);
}

}  // namespace
}  // namespace dtrain::parallel
