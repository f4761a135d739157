#include "record/rows.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/counted.hpp"

namespace dtrain::record {
namespace {

template <class Row>
void expect_columns_cover_the_row() {
  std::set<std::size_t> starts;
  std::size_t bytes = 0;
  for (const Column& column : columns_of<Row>()) {
    EXPECT_TRUE(starts.insert(column.offset).second) << column.name << " lies on another column";
    EXPECT_LE(column.offset + column.bytes, sizeof(Row)) << column.name;
    bytes += column.bytes;
  }
  EXPECT_EQ(bytes, sizeof(Row)) << "a member without a column, or one twice";
}

TEST(RowsTest, EveryMemberHasExactlyOneColumn) {
  expect_columns_cover_the_row<TopologyRow>();
  expect_columns_cover_the_row<EpochRow>();
  expect_columns_cover_the_row<TestRow>();
  expect_columns_cover_the_row<RankEpochRow>();
  expect_columns_cover_the_row<StepRow>();
  expect_columns_cover_the_row<TrafficRow>();
  expect_columns_cover_the_row<EventRow>();
  expect_columns_cover_the_row<SamplesRow>();
}

TEST(RowsTest, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(FixedText<4>("abc").view(), "abc");
  EXPECT_EQ(FixedText<4>("abcd").view(), "abcd");
  EXPECT_EQ(FixedText<4>("abcde").view(), "abcd");
  EXPECT_EQ(FixedText<4>("abcö").view(), "abc") << "half of a two-byte character is left out";
  EXPECT_EQ(FixedText<5>("abcöx").view(), "abcö");
  EXPECT_EQ(FixedText<4>("€€").view(), "€") << "three bytes each";
}

TEST(RowsTest, CpuListsAreRanges) {
  EXPECT_EQ(number_list(std::vector<int>{}), "");
  EXPECT_EQ(number_list(std::vector<int>{3}), "3");
  EXPECT_EQ(number_list(std::vector<int>{0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(RowsTest, ExclusivePhasesLeaveOutWhatOverlaps) {
  PhaseTimes times{.data_time_s = 1, .communication_time_s = 100, .other_time_s = 2, .transfer_time_s = 100};
  EXPECT_EQ(times.exclusive_s(), 3);
  times += times;
  EXPECT_EQ(times.exclusive_s(), 6);
  EXPECT_EQ(times.communication_time_s, 200);
}

}  // namespace
}  // namespace dtrain::record
