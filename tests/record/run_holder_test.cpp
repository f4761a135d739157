#include "record/run_holder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "record/process.hpp"
#include "record/run_folder.hpp"
#include "support/scratch_folder.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Claim = RunHolder::Claim;

class RunHolderTest : public testing::Test {
 protected:
  void leave(const std::string& line, std::chrono::seconds age) const {
    fs::create_directories(run_);
    std::ofstream(file_) << line << '\n';
    fs::last_write_time(file_, fs::file_time_type::clock::now() - age);
  }
  std::string refusal(Claim how) const {
    try {
      const RunHolder holder(run_, how);
      return {};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return error.what();
    }
  }

  test::ScratchFolder folder_;
  std::string run_ = folder_.file("runs/mine");
  std::string file_ = run_ + "/alive";
};

TEST_F(RunHolderTest, NamesItselfAndLeavesNothing) {
  {
    const RunHolder holder(run_, Claim::if_free);
    std::ifstream file(file_);
    std::string host;
    int pid = 0;
    file >> host >> pid;
    EXPECT_EQ(host, this_host());
    EXPECT_EQ(pid, ::getpid());
    EXPECT_EQ(other_holder(run_), "") << "it is no other one";
  }
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(RunHolderTest, LeavesAFolderThatHoldsSomething) {
  {
    const RunHolder holder(run_, Claim::if_free);
    write_state(run_, Status::completed);
  }
  EXPECT_FALSE(fs::exists(file_));
  EXPECT_EQ(read_state(run_), Status::completed);
}

TEST_F(RunHolderTest, AnotherLivingProcessKeepsItsFolder) {
  const auto parent = ::getppid();
  leave(this_host() + " " + std::to_string(parent) + " " + std::to_string(*start_of_process(parent)),
        std::chrono::hours(1));
  EXPECT_THAT(refusal(Claim::if_free), HasSubstr(std::to_string(parent)));
  EXPECT_TRUE(fs::exists(file_));
  EXPECT_EQ(refusal(Claim::taken_over), "");
}

TEST_F(RunHolderTest, AProcessThatHasEndedDoesNot) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  leave(this_host() + " " + std::to_string(child) + " 1", std::chrono::seconds(0));
  EXPECT_EQ(other_holder(run_), "");  // another start, and a zombie
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(refusal(Claim::if_free), "");
}

TEST_F(RunHolderTest, OneOfAnotherHostIsJudgedByItsSilence) {
  leave("elsewhere 1 1", std::chrono::seconds(30));
  write_state(run_, Status::running);
  EXPECT_THAT(other_holder(run_), HasSubstr("elsewhere"));
  write_state(run_, Status::failed);
  EXPECT_EQ(other_holder(run_), "");
  leave("elsewhere 1 1", std::chrono::seconds(0));
  EXPECT_THAT(refusal(Claim::if_free), HasSubstr("elsewhere"));
  write_state(run_, Status::running);
  leave("elsewhere 1 1", std::chrono::minutes(2));
  EXPECT_EQ(refusal(Claim::if_free), "");
}

TEST_F(RunHolderTest, AFileInItsPlaceIsRefused) {
  fs::create_directories(folder_.file("runs"));
  std::ofstream(run_) << "x";
  EXPECT_THAT(refusal(Claim::if_free), HasSubstr("it is a file"));
}

}  // namespace
}  // namespace dtrain::record
