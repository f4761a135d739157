#include "core/shared_failure.hpp"

#include <gtest/gtest.h>

#include <new>
#include <vector>

namespace dtrain {
namespace {

const Error kDamaged("is damaged", {.subject = "part-1.h5", .advice = "copy it", .code = ExitCode::data});
const Error kFull("has no room",
                  {.subject = "/scratch", .advice = "free some", .code = ExitCode::checkpoint});

TEST(SharedFailureTest, WhatAnActionThrowsIsReturned) {
  EXPECT_FALSE(failure_of([] {}).has_value());
  EXPECT_STREQ(failure_of([] { throw Error(kDamaged); })->what(), kDamaged.what());
  EXPECT_EQ(failure_of([] { throw std::bad_alloc(); })->problem(), "needs more memory than there is");
}

TEST(SharedFailureTest, AllRanksHaveTheFirstRanksSentenceAndTheHighestCode) {
  const std::vector<std::string> texts = {"", failure_to_text(kDamaged), "", failure_to_text(kFull)};
  const auto failure = first_failure(texts);
  ASSERT_TRUE(failure.has_value());
  EXPECT_STREQ(failure->what(), kDamaged.what());
  EXPECT_EQ(failure->subject(), kDamaged.subject());
  EXPECT_EQ(failure->advice(), kDamaged.advice());
  EXPECT_EQ(failure->code(), ExitCode::checkpoint);
}

TEST(SharedFailureTest, WhereNoRankFailedThereIsNone) {
  EXPECT_EQ(failure_to_text(std::nullopt), "");
  EXPECT_FALSE(first_failure(std::vector<std::string>(3)).has_value());
}

TEST(SharedFailureTest, LinesInAFileNameAddNoLine) {
  const Error error("says\n0\nmore", {.subject = "a\nb", .advice = ""});
  const auto again = failure_from_text(failure_to_text(error));
  ASSERT_TRUE(again.has_value());
  EXPECT_STREQ(again->what(), error.what());
  EXPECT_EQ(again->code(), ExitCode::failure);
}

TEST(SharedFailureTest, OtherTextIsNoFailure) {
  for (const char* text : {"", "no room: of 3 MiB", "3\nsubject\nproblem", "x\nsubject\nproblem\nadvice\n"})
    EXPECT_FALSE(failure_from_text(text).has_value()) << text;
}

}  // namespace
}  // namespace dtrain
