#include "core/start_notice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/captured_file.hpp"

namespace dtrain {
namespace {

using testing::HasSubstr;

class StartNoticeTest : public testing::Test {
 protected:
  std::string said() const { return file_.text(); }
  void await(const std::string& piece) const {
    for (int i = 0; i < 6000 && said().find(piece) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_THAT(said(), HasSubstr(piece));
  }

  test::CapturedFile file_;
};

TEST_F(StartNoticeTest, AQuickStartSaysNothing) {
  StartNotice notice("4 ranks", file_.get(), {.first_s = 1e6});
  notice.at("MPI connects the ranks");
  notice.done();
  EXPECT_EQ(said(), "");
}

TEST_F(StartNoticeTest, ALongStartSaysWhatItIsBusyWithAndWhereTheTimeWent) {
  StartNotice notice("100 ranks, 2 cores here", file_.get(), {.first_s = 0, .next_s = 0.01, .least_s = 0});
  notice.at("MPI connects the ranks");
  await("starting   100 ranks, 2 cores here: ");
  await(" s so far: MPI connects the ranks\n");
  notice.at("the ranks make their groups");
  await(" s so far: the ranks make their groups\n");
  notice.done();
  const std::string text = said();
  EXPECT_THAT(text, HasSubstr("started    after "));
  EXPECT_THAT(text, HasSubstr("s: the program is loaded "));
  EXPECT_THAT(text, HasSubstr(" s, the ranks make their groups "));
  notice.done();
  EXPECT_EQ(said(), text) << "once is enough";
}

TEST_F(StartNoticeTest, PartsThatTookLittleAreNotNamedAtTheEnd) {
  StartNotice notice("2 ranks", file_.get(), {.first_s = 0, .next_s = 0.01, .least_s = 1e6});
  notice.at("MPI connects the ranks");
  await(" s so far: MPI connects the ranks\n");
  notice.done();
  EXPECT_THAT(said(), testing::ContainsRegex("started    after [0-9]+ s\n$"));
}

TEST_F(StartNoticeTest, ItSpeaksAtLeastEveryTenSecondsThoughABusyMachineWakesItLate) {
  EXPECT_LE(StartNotice::Patience().first_s, 8);
  EXPECT_LE(StartNotice::Patience().next_s, 8);
}

TEST_F(StartNoticeTest, AStartThatFailsEndsTheNotice) {
  { const StartNotice notice("2 ranks", file_.get(), {.first_s = 1e6}); }
  EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace dtrain
