// Numbers as text, and text as numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/counted.hpp"
#include "core/median.hpp"
#include "core/parse_number.hpp"

namespace dtrain {
namespace {

TEST(ParseNumberTest, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("2.5e1"), 25.0);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x1f", "1.5", "99999999999"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  EXPECT_EQ(parse_number<std::size_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1,5"), std::nullopt);
}

TEST(ParseNumberTest, TakesALeadingNumberAndLeavesTheRest) {
  const auto number = leading_number<int>("12x3");
  EXPECT_TRUE(number);
  EXPECT_EQ(number.value, 12);
  EXPECT_EQ(number.rest, "x3");
  EXPECT_EQ(leading_number<int>("x3").error, std::errc::invalid_argument);
  EXPECT_EQ(leading_number<int>("x3").rest, "x3");
  EXPECT_EQ(leading_number<int>("").error, std::errc::invalid_argument);
  EXPECT_EQ(leading_number<int>("99999999999s").error, std::errc::result_out_of_range);
  EXPECT_EQ(leading_number<int>("99999999999s").rest, "s");
}

TEST(CountedTest, OneIsSingular) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(3, "NUMA node"), "3 NUMA nodes");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(numbered("rank", {4}), "rank 4");
  EXPECT_EQ(numbered("rank", {4, 7}), "ranks 4, 7");
}

TEST(MedianTest, OfAnEvenNumberTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

}  // namespace
}  // namespace dtrain
