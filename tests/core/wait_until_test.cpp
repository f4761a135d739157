#include "core/wait_until.hpp"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

using std::chrono::milliseconds;

TEST(WaitUntilTest, EndsWithTheCallThatIsFulfilled) {
  int calls = 0;
  EXPECT_TRUE(wait_until(steady_s() + 60, milliseconds(1), [&] { return ++calls == 3; }));
  EXPECT_EQ(calls, 3);
}

TEST(WaitUntilTest, LooksOnceWhereTheTimeIsOver) {
  int calls = 0;
  EXPECT_TRUE(wait_until(steady_s() - 1, milliseconds(1), [&] { return ++calls == 1; }));
  EXPECT_FALSE(wait_until(steady_s() - 1, milliseconds(1), [&] { return ++calls == 0; }));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace dtrain
