#include "own_process.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace dtrain::app {
namespace {

const ErrorContext kDamaged{.subject = "results.h5", .advice = "take another copy", .code = ExitCode::data};

TEST(OwnProcessTest, TheWorksExitCodeIsHandedOn) {
  for (const int code : {0, 3, 75}) EXPECT_EQ(in_own_process(kDamaged, [code] { return code; }), code);
}

TEST(OwnProcessTest, WhatTheWorkChangesStaysThere) {
  int here = 1;
  EXPECT_EQ(in_own_process(kDamaged, [&here] { return ++here; }), 2);
  EXPECT_EQ(here, 1);
}

TEST(OwnProcessTest, AFaultIsAnErrorThatNamesTheFile) {
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) {
    try {
      in_own_process(kDamaged, [fault] {
        std::signal(fault, SIG_DFL);  // a sanitizer's own would make an exit code of it
        std::raise(fault);
        return 0;
      });
      FAIL() << "signal " << fault << " was no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(
          std::string(error.what())
              .find("results.h5: has ended the library that reads it, by signal " + std::to_string(fault)),
          std::string::npos)
          << error.what();
    }
  }
}

TEST(OwnProcessTest, ASignalThatSomeoneSendsEndsTheCallerAsWell) {
  const auto interrupted = [] {
    in_own_process(kDamaged, [] {
      std::raise(SIGTERM);
      return 0;
    });
    std::exit(0);
  };
  EXPECT_EXIT(interrupted(), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace dtrain::app
