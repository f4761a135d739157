#include "core/slice.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain {
namespace {

TEST(SliceTest, PartsCoverARangeOnceAndDifferByAtMostOne) {
  for (const std::int64_t n : {0, 1, 2, 7, 64, 1000003}) {
    for (const std::int64_t parts : {1, 2, 3, 7, 64}) {
      std::int64_t end = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Range part = part_of(n, i, parts);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), n / parts);
        EXPECT_LE(part.size(), n / parts + (n % parts == 0 ? 0 : 1));
        end = part.end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

TEST(SliceTest, AWholeSliceIsTheTensor) {
  const Slice slice = Slice::whole("weight", {3, 4, 5});
  EXPECT_TRUE(slice.is_whole());
  EXPECT_EQ(slice.count(), 60);
  EXPECT_NO_THROW(slice.validate());
  EXPECT_EQ(Slice::whole("number", {}).count(), 1);
  EXPECT_EQ(Slice::whole("empty", {0, 4}).count(), 0);
}

TEST(SliceTest, ASliceThatLeavesItsTensorIsRefusedByName) {
  const auto problem_of = [](const Slice& slice) {
    try {
      slice.validate();
    } catch (const Error& error) {
      return error.subject() + ": " + error.problem();
    }
    return std::string();
  };
  EXPECT_EQ(problem_of({"w", {4, 4}, {2, 0}, {2, 4}}), "");
  EXPECT_EQ(problem_of({"w", {4, 4}, {3, 0}, {2, 4}}), "w: a slice leaves its tensor");
  EXPECT_EQ(problem_of({"w", {4, 4}, {-1, 0}, {2, 4}}), "w: a slice leaves its tensor");
  EXPECT_EQ(problem_of({"w", {4, 4}, {0}, {4}}), "w: a slice has other dims than its tensor");
  EXPECT_FALSE(Slice({"w", {4, 4}, {2, 0}, {2, 4}}).is_whole());
}

}  // namespace
}  // namespace dtrain
