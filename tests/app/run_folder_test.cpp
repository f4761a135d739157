#include "run/run_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/scratch_folder.hpp"

namespace dtrain::app {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Which file it is: another one of the same name has another number.
ino_t number_of(const fs::path& file) {
  struct stat facts = {};
  EXPECT_EQ(::stat(file.c_str(), &facts), 0) << file;
  return facts.st_ino;
}

class RunFolderTest : public testing::Test {
 protected:
  fs::path path(const char* name) const { return run().path() / name; }
  RunFolder run() const { return RunFolder(fs::path(folder_.path()) / "run"); }

 private:
  test::ScratchFolder folder_;
};

// A removal and a new file of the same content would leave a moment without the ledger.
TEST_F(RunFolderTest, ALedgerStaysInPlaceWhereARunWithoutCheckpointsBeginsAnew) {
  write(path("state"), "failed\n");
  write(path("results.h5"), "x");
  write(path("privacy.ledger"), "released\n");
  const auto before = number_of(path("privacy.ledger"));
  run().prepare(RunFolder::Contents::unsaved, "seed = 1\n");
  EXPECT_EQ(number_of(path("privacy.ledger")), before);
  EXPECT_EQ(text_of(path("privacy.ledger")), "released\n");
  EXPECT_FALSE(fs::exists(path("results.h5")));
  EXPECT_EQ(text_of(path("state")), "running\n");
  EXPECT_EQ(text_of(path("config.toml")), "seed = 1\n");
}

TEST_F(RunFolderTest, AnAttemptThatFailsEarlyLeavesTheLedgerOfTheOneBefore) {
  write(path("state"), "failed\n");
  write(path("privacy.ledger"), "released\n");
  run().prepare(RunFolder::Contents::unsaved, "");
  run().mark_failed();
  EXPECT_EQ(text_of(path("privacy.ledger")), "released\n");
  EXPECT_EQ(text_of(path("state")), "failed\n");
  EXPECT_NO_THROW(run().prepare(RunFolder::Contents::unsaved, ""));
}

TEST_F(RunFolderTest, AFirstAttemptThatFailsEarlyLeavesTheNameFree) {
  run().prepare(RunFolder::Contents::unsaved, "");
  run().mark_failed();
  EXPECT_FALSE(fs::exists(run().path()));
}

TEST_F(RunFolderTest, ARefusedCommandPutsBackStateAndConfiguration) {
  write(path("state"), "preempted\n");
  write(path("config.toml"), "limit-steps = 60\n");
  fs::create_directories(path("checkpoints"));
  const auto earlier = run().earlier();
  run().prepare(RunFolder::Contents::kept, "limit-steps = 50\n");
  EXPECT_EQ(text_of(path("state")), "running\n");
  run().put_back(earlier);
  EXPECT_EQ(text_of(path("state")), "preempted\n");
  EXPECT_EQ(text_of(path("config.toml")), "limit-steps = 60\n");
}

}  // namespace
}  // namespace dtrain::app
