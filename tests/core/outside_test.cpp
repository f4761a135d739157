#include "core/outside.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <vector>

namespace dtrain {
namespace {

using testing::HasSubstr;
using testing::Not;

/// What is thrown on where an action throws `thrown`.
template <typename Thrown>
Error rethrown(const Thrown& thrown) {
  try {
    understand_from_outside({.subject = "file", .advice = "take another", .code = ExitCode::checkpoint},
                            [&] { throw thrown; });
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {"none", {}};
}

void expect_sentence(const Error& error, const std::string& words) {
  EXPECT_EQ(error.code(), ExitCode::checkpoint);
  EXPECT_EQ(std::string(error.what()), "file: " + words + "; take another");
}

TEST(OutsideTest, WhatIsUnderstoodIsHandedOn) {
  EXPECT_EQ(understand_from_outside({}, [] { return 7; }), 7);
}

TEST(OutsideTest, ExceptionsOfLibrariesAreSaidInOurWords) {
  expect_sentence(rethrown(std::bad_alloc()), "needs more memory than there is");
  expect_sentence(rethrown(std::length_error("vector::_M_default_append")),
                  "needs more memory than there is");
  expect_sentence(rethrown(std::out_of_range("map::at")), "cannot be understood");
  expect_sentence(rethrown(std::invalid_argument("stoll")), "cannot be understood");
  expect_sentence(rethrown(std::filesystem::filesystem_error(
                      "cannot rename", "a/b", std::make_error_code(std::errc::permission_denied))),
                  "a/b: Permission denied");
}

TEST(OutsideTest, ExceptionsOfJsonAreSaidInOurWords) {
  const auto words = [](const char* text) { return problem_of(std::runtime_error(text)); };
  EXPECT_EQ(words("[json.exception.parse_error.101] parse error at line 1, column 136: syntax error while "
                  "parsing value - invalid literal; last read: '\"loss\": I'"),
            "is not valid JSON at line 1");
  EXPECT_EQ(words("[json.exception.out_of_range.403] key 'samples' not found"), "has no field samples");
  EXPECT_EQ(words("[json.exception.type_error.302] type must be string, but is array"),
            "has a field of another type than it should");
  EXPECT_EQ(words("[json.exception.type_error.316] invalid UTF-8 byte at index 1: 0xF6"),
            "holds text that is not UTF-8");
}

TEST(OutsideTest, OfOtherExceptionsOneLineIsQuoted) {
  const std::string problem = problem_of(std::runtime_error("no such\x1b operator\nframe #0: c10::Error"));
  EXPECT_EQ(problem, "cannot be understood (no such\\x1b operator)");
}

TEST(OutsideTest, AnErrorThatOnlySaysFailureGetsThePromisedCode) {
  expect_sentence(rethrown(Error("is missing", {})), "is missing");
  const Error named = rethrown(Error("is missing", {.subject = "x.h5:/w", .advice = "look"}));
  EXPECT_EQ(named.code(), ExitCode::checkpoint);
  EXPECT_STREQ(named.what(), "x.h5:/w: is missing; look");
}

TEST(OutsideTest, AnErrorWithACodeOfItsOwnPasses) {
  EXPECT_EQ(rethrown(data_error("is damaged", "shard", "stage again")).code(), ExitCode::data);
  EXPECT_EQ(rethrown(Error("rank 1 is gone", {.code = ExitCode::lost_rank})).code(), ExitCode::lost_rank);
}

}  // namespace
}  // namespace dtrain
