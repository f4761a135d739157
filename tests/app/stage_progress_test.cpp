#include "stage/stage_progress.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/captured_file.hpp"

namespace dtrain::app {
namespace {

/// What is written while one thing takes long enough for some lines.
std::string said_of_long_work(bool terminal, const StageProgress::Pace& pace) {
  const test::CapturedFile file;
  {
    StageProgress line(file.get(), terminal, pace);
    line.at("reading table.csv", 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    line.at("writing train", 0.5);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  std::fflush(file.get());
  return file.text();
}

TEST(StageProgressTest, AFileGetsLinesAlsoWhileTheWorkTellsNothing) {
  const std::string text = said_of_long_work(false, {.in_place_s = 100, .lines_s = 0.05});
  EXPECT_NE(text.find("reading table.csv  0 s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("50 %  writing train  "), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(StageProgressTest, ATerminalGetsOneLineThatIsGoneAtTheEnd) {
  const std::string text = said_of_long_work(true, {.in_place_s = 0.05, .lines_s = 100});
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_NE(text.find("\rreading table.csv  0 s"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(" \r")) << text;
}

TEST(StageProgressTest, QuickWorkSaysNothingIntoAFile) {
  const test::CapturedFile file;
  {
    StageProgress line(file.get(), false);
    line.at("reading", 0);
  }
  std::fflush(file.get());
  EXPECT_EQ(file.text(), "");
}

}  // namespace
}  // namespace dtrain::app
