#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/reduce.hpp"

namespace dtrain::kernels {
namespace {

TEST(HashTest, EveryBitAndTheLengthCount) {
  std::vector<unsigned char> bytes(101);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 37);
  std::set<std::uint64_t> seen = {hash_bytes(bytes.data(), bytes.size())};
  std::size_t changes = 1;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit, ++changes) {
    auto changed = bytes;
    changed[bit / 8] = static_cast<unsigned char>(changed[bit / 8] ^ (1U << bit % 8));
    seen.insert(hash_bytes(changed.data(), changed.size()));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length, ++changes) {
    seen.insert(hash_bytes(bytes.data(), length));
  }
  EXPECT_EQ(seen.size(), changes);
}

TEST(HashTest, ZerosOfDifferentLengthAndSwappedWordsDiffer) {
  const std::vector<std::uint64_t> zeros(64);
  std::set<std::uint64_t> seen;
  for (std::size_t n = 0; n <= 512; ++n) seen.insert(hash_bytes(zeros.data(), n));
  EXPECT_EQ(seen.size(), 513U);
  std::vector<std::uint64_t> words = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto before = hash_bytes(words.data(), 64);
  std::swap(words[0], words[4]);  // within one lane
  EXPECT_NE(hash_bytes(words.data(), 64), before);
  std::swap(words[0], words[4]);
  std::swap(words[1], words[2]);  // across lanes
  EXPECT_NE(hash_bytes(words.data(), 64), before);
  EXPECT_NE(hash_bytes(zeros.data(), 8, 1), hash_bytes(zeros.data(), 8, 2));
}

TEST(HashTest, OneFlippedBitTurnsHalfOfTheResult) {
  std::vector<std::uint64_t> words(100, 42);
  const auto before = hash_bytes(words.data(), 800);
  double turned = 0.0;
  for (int bit = 0; bit < 64; ++bit) {
    auto changed = words;
    changed[50] ^= std::uint64_t{1} << bit;
    turned += std::popcount(before ^ hash_bytes(changed.data(), 800));
  }
  EXPECT_NEAR(turned / 64.0, 32.0, 3.0);
}

}  // namespace
}  // namespace dtrain::kernels
