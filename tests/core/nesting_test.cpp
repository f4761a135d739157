#include "core/nesting.hpp"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

/// `text` so many times, between two others.
std::string many(const std::string& before, const std::string& text, int times,
                 const std::string& behind = "") {
  std::string all = before;
  for (int i = 0; i < times; ++i) all += text;
  return all += behind;
}

TEST(NestingTest, JsonIsRefusedByDepthAndByTheNumberOfItsValues) {
  EXPECT_EQ(refused_json(R"({"a": [1, {"b": 2.5}], "c": "x"})"), "");
  EXPECT_EQ(refused_json(many("", "[", 64, many("", "]", 64))), "");
  EXPECT_EQ(refused_json(many("", "[", 65)), "is nested in more than 64 levels");
  EXPECT_EQ(refused_json(many("", R"({"a":)", 100'000)), "is nested in more than 64 levels");
  EXPECT_EQ(refused_json(many("[", "0,", 11, "0]"), {.values = 10}), "holds more than 10 values");
  EXPECT_EQ(refused_json(many("[", "0,", 10, "0]"), {.values = 10}), "");
}

TEST(NestingTest, TextInQuotesDoesNotCount) {
  EXPECT_EQ(refused_json(many("\"", "[", 1000, many("\\\"", "{", 1000, "\""))), "");
  EXPECT_EQ(refused_json(many("[\"", "0,", 100, "\"]"), {.values = 10}), "");
  EXPECT_EQ(refused_json(many("\"closed\"", "[", 65)), "is nested in more than 64 levels");
}

TEST(NestingTest, TomlIsRefusedByDepthAndByDottedNames) {
  EXPECT_EQ(refused_toml("# a.b.c\nlearning-rate = 0.5\nmodel-option = [\"hidden=1.5\", 'a.b']\n"), "");
  EXPECT_EQ(refused_toml(many("x = ", "[", 100'000)), "is nested in more than 16 levels");
  EXPECT_EQ(refused_toml(many("x = ", "{a = ", 50'000)), "is nested in more than 16 levels");
  EXPECT_EQ(refused_toml(many("[", "a.", 50'000, "a]\n")), "is nested in more than 32 levels");
  EXPECT_EQ(refused_toml(many("", "\"a\".", 50'000, "b = 1\n")), "is nested in more than 32 levels");
}

TEST(NestingTest, QuotesInTomlHideNothingBehindThem) {
  EXPECT_EQ(refused_toml(many("# it's \"\"\" open\nx = ", "[", 20)), "is nested in more than 16 levels");
  EXPECT_EQ(refused_toml(many("x = 'open\ny = ", "[", 20)), "is nested in more than 16 levels");
  EXPECT_EQ(refused_toml(many("x = \"\"\"a\n", "[", 20, "\"\"\"\n")), "");
  EXPECT_EQ(refused_toml(many("x = '\\'\ny = ", "[", 20)), "is nested in more than 16 levels");
}

}  // namespace
}  // namespace dtrain
