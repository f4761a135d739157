#include "core/regular_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "core/sha256.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain {
namespace {

using testing::HasSubstr;

class RegularFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::mkfifo(folder_.file("fifo").c_str(), 0600), 0);
    std::filesystem::create_directory(folder_.file("folder"));
    std::ofstream(folder_.file("file")) << "text";
  }
  static Error refusal(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was refused";
    return {"none", {}};
  }
  test::ScratchFolder folder_;
};

TEST_F(RegularFileTest, WhatHasNoEndOrNoBeginningIsRefusedAtOnce) {
  alarm(20);  // a FIFO without a writer would be waited for
  for (const auto& [path, kind] : {std::pair{folder_.file("fifo"), "is a FIFO"},
                                   {folder_.file("folder"), "is a folder"},
                                   {std::string("/dev/zero"), "is a device"}}) {
    for (const std::function<void()>& action :
         {std::function<void()>([&] { require_regular_file(path, ExitCode::data); }),
          std::function<void()>([&] { open_regular_file(path, ExitCode::data); }),
          std::function<void()>([&] { read_regular_file(path, 100, ExitCode::data); }),
          std::function<void()>([&] { require_writable_place(path, ExitCode::data); }),
          std::function<void()>([&] { sha256_of_file(path, ExitCode::data); })}) {
      const Error error = refusal(action);
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_EQ(error.subject(), path);
      EXPECT_THAT(error.problem(), HasSubstr(kind));
      EXPECT_FALSE(error.advice().empty());
    }
  }
  alarm(0);
}

TEST_F(RegularFileTest, APlaceToWriteHasAFolderAndANameThatFits) {
  EXPECT_NO_THROW(require_writable_place(folder_.file("new"), ExitCode::usage));
  for (const std::string& path : {folder_.file("gone/new"), folder_.file(std::string(300, 'x'))}) {
    const Error error = refusal([&] { require_writable_place(path, ExitCode::usage); });
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.subject(), path);
  }
}

TEST_F(RegularFileTest, AFileIsReadThroughALinkAndUpToItsLimit) {
  std::filesystem::create_symlink("file", folder_.file("link"));
  EXPECT_EQ(read_regular_file(folder_.file("link"), 4, ExitCode::data), "text");
  const Error error = refusal([&] { read_regular_file(folder_.file("file"), 3, ExitCode::usage); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_THAT(error.problem(), HasSubstr("is larger than"));
}

TEST_F(RegularFileTest, WhatIsNotThereIsNamedWhenItIsOpened) {
  require_regular_file(folder_.file("none"), ExitCode::data);
  require_writable_place(folder_.file("none"), ExitCode::data);
  EXPECT_THAT(refusal([&] { open_regular_file(folder_.file("none"), ExitCode::data); }).problem(),
              HasSubstr("cannot be opened (No such file"));
  EXPECT_THAT(refusal([&] { require_writable_place(folder_.file("none/x"), ExitCode::usage); }).problem(),
              HasSubstr("folder is not there"));
}

}  // namespace
}  // namespace dtrain
