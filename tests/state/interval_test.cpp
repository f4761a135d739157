#include "state/interval.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace dtrain::state {
namespace {

TEST(IntervalTest, CountsStepsAndEpochsAndMeasuresTime) {
  EXPECT_EQ(parse_interval("500steps", "--x").unit, Interval::Unit::steps);
  EXPECT_EQ(parse_interval("500steps", "--x").count, 500);
  EXPECT_EQ(parse_interval("1epoch", "--x").unit, Interval::Unit::epochs);
  EXPECT_EQ(parse_interval("55min", "--x").count, 3300);
  EXPECT_EQ(parse_interval("1.5h", "--x").count, 5400);
  EXPECT_EQ(parse_interval("90s", "--x").unit, Interval::Unit::seconds);
}

TEST(IntervalTest, RefusesEverythingElse) {
  for (const char* text :
       {"", "often", "10", "min", "0steps", "1.5steps", "-3s", "0s", "nan s", "infs", "5 min", "5minutes"}) {
    try {
      parse_interval(text, "--checkpoint-every");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << text;
      EXPECT_EQ(error.subject(), "--checkpoint-every") << text;
    }
  }
}

}  // namespace
}  // namespace dtrain::state
