#include "record/run_folder.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "support/scratch_folder.hpp"

namespace {

namespace fs = std::filesystem;

/// What was synced, each with its content at that time where it is a file.
struct Synced {
  std::string path;
  std::string text;
};
std::vector<Synced> all_synced;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

/// In the place of the C library's.
extern "C" int fsync(int file) {
  const auto path = fs::read_symlink("/proc/self/fd/" + std::to_string(file)).string();
  all_synced.push_back({path, fs::is_directory(path) ? "" : text_of(path)});
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace dtrain::record {
namespace {

TEST(RunFolderTest, AFileIsOnTheDiskBeforeItsNameAndTheNameBeforeTheCallReturns) {
  const test::ScratchFolder folder;
  const auto path = folder.path() + "/privacy.ledger";
  replace_file(path, "one\n");
  EXPECT_TRUE(all_synced.empty()) << "only where it has to be durable";
  replace_file_durably(path, "two\n");
  ASSERT_EQ(all_synced.size(), 2U);
  EXPECT_EQ(all_synced[0].path, fs::canonical(folder.path()).string() + "/privacy.ledger.partial");
  EXPECT_EQ(all_synced[0].text, "two\n");
  EXPECT_EQ(all_synced[1].path, fs::canonical(folder.path()).string());
  EXPECT_EQ(text_of(path), "two\n");
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(RunFolderTest, AFileThatCannotBeReplacedStaysAndIsNamed) {
  const test::ScratchFolder folder;
  const auto path = folder.path() + "/privacy.ledger";
  fs::create_directories(path + "/inside");  // no file can take its place
  for (const auto replace : {replace_file, replace_file_durably}) {
    try {
      replace(path, "two\n");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.subject(), path);
    }
    EXPECT_FALSE(fs::exists(path + ".partial"));
  }
}

}  // namespace
}  // namespace dtrain::record
