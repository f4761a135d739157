#include "doctor/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <thread>

#include "doctor/bounded.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::doctor {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kLimit_s = 20;
constexpr std::chrono::milliseconds kWhile{500};  // longer than a busy machine keeps a thread from its turn

auto is(Level level, const std::string& text, const std::string& remedy) {
  return AllOf(Field(&Finding::level, level), Field(&Finding::text, HasSubstr(text)),
               Field(&Finding::remedy, HasSubstr(remedy)));
}

TEST(FolderTest, ThatWorksLeavesNothingBehind) {
  const ScratchFolder scratch;
  const auto facts = try_folder(scratch.file("runs/deep"), kLimit_s);
  EXPECT_EQ(facts.part, scratch.path());
  EXPECT_EQ(facts.failed + facts.stuck_in + facts.lock_error, "");
  EXPECT_GT(facts.free_bytes, 0);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(FolderTest, ThatCannotBeWrittenIsReported) {
  EXPECT_THAT(judge_folder(try_folder("/proc/runs", kLimit_s), "--output"),
              ElementsAre(is(Level::problem, "/proc is not writable", "name another folder with --output")));
  const ScratchFolder scratch;
  std::ofstream(scratch.file("taken")) << "x";
  EXPECT_THAT(judge_folder(try_folder(scratch.file("taken"), kLimit_s), "--output"),
              ElementsAre(is(Level::problem, "is not writable: Not a directory", "--output")));
}

TEST(FolderTest, WhatFailsOrHangsIsNamed) {
  EXPECT_THAT(judge_folder({.part = "/data", .failed = "fsync", .reason = "Input/output error"}, "--output"),
              ElementsAre(is(Level::problem, "/data: fsync fails: Input/output error", "--output")));
  EXPECT_THAT(
      judge_folder({.part = "/data", .stuck_in = "fcntl (F_SETLK)"}, "--output"),
      ElementsAre(is(Level::problem, "/data does not answer: fcntl (F_SETLK) hangs", "administrator")));
}

TEST(FolderTest, LittleRoomSlowSyncAndMissingLocksAreSaid) {
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_THAT(judge_folder({.part = "/data", .free_bytes = 10 * kMiB}, "--output"),
              ElementsAre(is(Level::problem, "10 MiB are free", "make room")));
  EXPECT_THAT(judge_folder({.part = "/data", .free_bytes = 500 * kMiB}, "--output"),
              ElementsAre(is(Level::note, "500 MiB are free", "--keep")));
  EXPECT_THAT(
      judge_folder(
          {.part = "/d", .lock_error = "fcntl: No locks available", .sync_s = 3, .free_bytes = 9000 * kMiB},
          "--output"),
      ElementsAre(
          is(Level::note, "3.0 s until 1 MiB is safe", "--checkpoint-every"),
          is(Level::note, "no file locks (fcntl: No locks available)", "HDF5_USE_FILE_LOCKING=FALSE")));
}

TEST(SharedTrialTest, IsSeenWholeWhileItIsReplacedAndIsGoneAfterwards) {
  const ScratchFolder scratch;
  {
    const SharedTrial trial(scratch.file("runs"));
    ASSERT_FALSE(trial.path().empty());
    auto seen = std::async(std::launch::async, [&] { return look_at_trial(trial.path(), 1, kLimit_s); });
    trial.replace_versions();
    EXPECT_THAT(judge_seen(seen.get(), "runs", "node0"), IsEmpty());
    EXPECT_THAT(unseen_nodes(trial.path(), 2, 1), IsEmpty());
    EXPECT_THAT(unseen_nodes(trial.path(), 3, 0.1), ElementsAre(2));
  }
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(SharedTrialTest, WhatAnotherNodeDoesNotSeeIsReported) {
  EXPECT_THAT(
      judge_seen({.seen = false}, "runs", "node0"),
      ElementsAre(is(Level::problem, "a file that node0 writes in runs is not seen", "all nodes share")));
  EXPECT_THAT(judge_seen({.seen = true, .broken = true}, "runs", "node0"),
              ElementsAre(is(Level::problem, "missing or half for a moment", "rename is atomic")));
  EXPECT_THAT(judge_seen({.seen = true, .after_s = 4}, "runs", "node0"),
              ElementsAre(is(Level::note, "seen 4.0 s later", "actimeo")));
  EXPECT_EQ(judge_unseen("runs", "node1").level, Level::problem);
}

TEST(SharedTrialTest, NoticesAFileThatVanishesWhileItIsReplaced) {
  const ScratchFolder scratch;
  const SharedTrial trial(scratch.path());
  auto seen = std::async(std::launch::async, [&] { return look_at_trial(trial.path(), 1, kLimit_s); });
  std::this_thread::sleep_for(kWhile);
  fs::remove(trial.path() / "state");  // as where a rename is a copy
  std::this_thread::sleep_for(kWhile);
  trial.replace_versions();
  EXPECT_TRUE(seen.get().broken);
}

TEST(WithinTest, LeavesWorkThatHangsBehindAndNamesItsStep) {
  const char* stuck_in = nullptr;
  const auto hung = within<int>(
      std::chrono::duration<double>(kWhile).count(),
      [](Step& step) {
        step = "fsync";
        std::this_thread::sleep_for(std::chrono::seconds(3));
        return 1;
      },
      stuck_in);
  EXPECT_FALSE(hung.has_value());
  EXPECT_STREQ(stuck_in, "fsync");
  EXPECT_EQ(within<int>(
                kLimit_s, [](Step&) { return 2; }, stuck_in),
            2);
}

}  // namespace
}  // namespace dtrain::doctor
