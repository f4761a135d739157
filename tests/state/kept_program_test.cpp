#include "state/kept_program.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.hpp"

namespace dtrain::state {
namespace {

namespace fs = std::filesystem;

/// A model of a program, which writes its name in place of it.
class OfProgram final : public models::Model {
 public:
  OfProgram() : Model("net", {}) {}
  models::LossSums loss(const models::Tensors& /*outputs*/, const at::Tensor& /*targets*/) const override {
    return {};
  }
  std::string program_hash() const override { return "of the program"; }
  std::string constants_hash() const override { return "of the constants"; }
  void save_program(const std::string& path) const override { std::ofstream(path) << "program"; }
};

class KeptProgramTest : public testing::Test {
 protected:
  KeptProgramTest() : run_(fs::path(testing::TempDir()) / "kept_program") { fs::remove_all(run_); }
  ~KeptProgramTest() override { fs::remove_all(run_); }

  static std::string line_of(const fs::path& file) {
    std::string line;
    std::ifstream stream(file);
    std::getline(stream, line);
    return line;
  }

  const fs::path run_;
};

TEST_F(KeptProgramTest, KeepsTheProgramAndTheHashOfItsConstants) {
  keep_program(run_.string(), "net.pt2", OfProgram());
  EXPECT_EQ(line_of(run_ / "program/net.pt2"), "program");
  EXPECT_EQ(line_of(run_ / "program/net.constants"), "of the constants");
  EXPECT_EQ(std::distance(fs::directory_iterator(run_ / "program"), {}), 2);
}

TEST_F(KeptProgramTest, AFullDiskIsReportedAndLeavesNothingThatCountsAsKept) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  fs::create_directories(run_ / "program");
  for (const char* name : {"program/net.constants", "program/net.constants.partial"})
    fs::create_symlink("/dev/full", run_ / name);
  try {
    keep_program(run_.string(), "net.pt2", OfProgram());
    ADD_FAILURE() << "took a full disk for one with room";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_NE(error.subject().find("net.constants"), std::string::npos) << error.what();
    EXPECT_NE(error.advice().find("make room"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(run_ / "program/net.pt2"));
}

}  // namespace
}  // namespace dtrain::state
