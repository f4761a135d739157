#include "core/sha256.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace dtrain {
namespace {

// The example messages of FIPS 180-4's test vectors.
constexpr const char* kOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Sha256Test, GivesTheStandardsAnswers) {
  EXPECT_EQ(Sha256().hexadecimal(), kOfNothing);
  EXPECT_EQ(sha256_of(""), kOfNothing);
  EXPECT_EQ(sha256_of("abc"), kOfAbc);
}

TEST(Sha256Test, AFileOfSeveralReadsIsOneMessage) {
  const auto path = std::filesystem::path(testing::TempDir()) / "dtrain_sha256_test";
  const std::string text((1 << 21) + 5, 'x');
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(sha256_of_file(path, ExitCode::data), sha256_of(text));
  std::filesystem::remove(path);
}

TEST(Sha256Test, AFileThatCannotBeReadIsNamedWithTheCallersCode) {
  try {
    sha256_of_file("no/such/file", ExitCode::checkpoint);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), "no/such/file");
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
  }
}

TEST(Sha256Test, PiecesEqualTheWhole) {
  Sha256 pieces;
  pieces.add("a", 1);
  pieces.add("", 0);
  pieces.add("bc", 2);
  EXPECT_EQ(pieces.hexadecimal(), kOfAbc);
}

}  // namespace
}  // namespace dtrain
