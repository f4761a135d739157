#include "core/own_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "core/regular_file.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uid_t kOther = 64102;

class OwnPlaceTest : public testing::Test {
 protected:
  void SetUp() override { write("precious", "years of work"); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  std::string at(const std::string& name) const { return folder_.file(name); }
  std::string text(const std::string& name) const {
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  template <typename Action>
  static std::optional<Error> refusal(Action action) {
    try {
      action();
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }
  std::optional<Error> refusal_of(const std::string& name) const {
    return refusal([&] {
      require_own_folder(at(name),
                         {.subject = "--output", .advice = "name another", .code = ExitCode::usage});
    });
  }

  test::ScratchFolder folder_;
};

TEST_F(OwnPlaceTest, LinksAreReplacedAndNotWrittenThrough) {
  fs::create_symlink("precious", at("link"));
  fs::create_hard_link(at("precious"), at("hard"));
  fs::create_symlink("nowhere", at("dangling"));
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "hard", "dangling", "fifo", "new"}) {
    claim_file(at(name), ExitCode::data);
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(at(name)))) << name;
    EXPECT_EQ(fs::hard_link_count(at(name)), 1U) << name;
    write(name, "new");
  }
  EXPECT_EQ(text("precious"), "years of work");
  EXPECT_FALSE(fs::exists(at("nowhere")));
}

TEST_F(OwnPlaceTest, AFileOfOnesOwnKeepsItsRoomAndAFolderIsLeftAlone) {
  fs::create_directory(at("folder"));
  claim_file(at("precious"), ExitCode::data);
  claim_file(at("folder"), ExitCode::data);
  EXPECT_EQ(text("precious"), "years of work");
  EXPECT_TRUE(fs::is_directory(at("folder")));
}

TEST_F(OwnPlaceTest, OnesOwnFoldersPassHoweverOpenTheyAre) {
  fs::create_directory(at("open"));
  fs::permissions(at("open"), fs::perms(0777));
  fs::create_directory_symlink("open", at("link"));
  for (const char* name : {"open", "link", "missing", "open/missing"}) EXPECT_FALSE(refusal_of(name)) << name;
}

TEST_F(OwnPlaceTest, AnotherUsersFolderIsRefusedWhereOthersMayReplaceWhatIsInIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "to give a folder to another user needs root";
  fs::create_directories(at("theirs/run"));
  fs::create_directory_symlink("theirs", at("link"));
  for (const char* name : {"theirs", "theirs/run", "link"})
    ASSERT_EQ(::lchown(at(name).c_str(), kOther, kOther), 0);
  for (const char* name : {"theirs", "theirs/run", "link", "link/"})
    EXPECT_FALSE(refusal_of(name)) << name;  // in a place that is theirs, or this user's alone
  fs::permissions(at("theirs/run"), fs::perms(0777));
  ASSERT_TRUE(refusal_of("theirs/run"));
  EXPECT_EQ(refusal_of("theirs/run")->code(), ExitCode::usage);
  EXPECT_THAT(refusal_of("theirs/run")->what(), HasSubstr("--output: is another user's (uid 64102)"));
  fs::permissions(folder_.path(), fs::perms(01777));
  for (const char* name : {"theirs", "link", "link/"}) EXPECT_TRUE(refusal_of(name)) << name;
}

TEST_F(OwnPlaceTest, ALinkOfAnotherUserToAFileOfOnesOwnIsNotRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "to give a link to another user needs root";
  write("theirs", "shared");
  fs::create_symlink("precious", at("link"));
  fs::create_symlink("theirs", at("fine"));
  for (const char* name : {"theirs", "link", "fine"})
    ASSERT_EQ(::lchown(at(name).c_str(), kOther, kOther), 0);
  EXPECT_EQ(read_regular_file(at("fine"), 100, ExitCode::data), "shared");
  require_regular_file(at("fine"), ExitCode::data);
  for (const auto& error : {refusal([&] { read_regular_file(at("link"), 100, ExitCode::data); }),
                            refusal([&] { require_regular_file(at("link"), ExitCode::data); })}) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ExitCode::data);
    EXPECT_THAT(error->problem(), HasSubstr("another user (uid 64102)"));
  }
}

TEST_F(OwnPlaceTest, AFreeNameHasNothingBehindItAndNoLink) {
  EXPECT_EQ(free_name(at("aside")), at("aside"));
  std::ofstream(at("aside")) << "taken";
  std::filesystem::create_symlink("nowhere", at("aside-2"));
  EXPECT_EQ(free_name(at("aside")), at("aside-3"));
}

}  // namespace
}  // namespace dtrain
