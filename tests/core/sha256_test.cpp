#include "core/sha256.hpp"

#include <gtest/gtest.h>

namespace dtrain {
namespace {

// The example messages of FIPS 180-4's test vectors.
TEST(Sha256Test, GivesTheStandardsAnswers) {
  EXPECT_EQ(Sha256().hexadecimal(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 abc;
  abc.add("abc", 3);
  EXPECT_EQ(abc.hexadecimal(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesEqualTheWhole) {
  Sha256 pieces;
  pieces.add("a", 1);
  pieces.add("", 0);
  pieces.add("bc", 2);
  EXPECT_EQ(pieces.hexadecimal(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace dtrain
