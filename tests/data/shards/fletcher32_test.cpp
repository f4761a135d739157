#include "data/shards/fletcher32.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dtrain::data {
namespace {

std::vector<std::byte> pattern(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

/// The definition, word by word.
std::uint32_t by_definition(const std::vector<std::byte>& bytes) {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xFFFFU) + (sum >> 16); };
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = std::to_integer<std::uint32_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0U;
    first = fold(first + (high << 8 | low));
    second = fold(second + first);
  }
  return fold(second) << 16 | fold(first);
}

TEST(Fletcher32Test, EqualsTheDefinitionForEveryLengthUpToSomeRows) {
  for (std::size_t count = 0; count < 400; ++count) {
    const auto bytes = pattern(count, 1);
    EXPECT_EQ(fletcher32(bytes), by_definition(bytes)) << count;
  }
}

TEST(Fletcher32Test, EqualsTheDefinitionAcrossBlocks) {
  for (const std::size_t count :
       {std::size_t{16383}, std::size_t{16384}, std::size_t{16385}, std::size_t{1} << 20}) {
    const auto bytes = pattern(count, 2);
    EXPECT_EQ(fletcher32(bytes), by_definition(bytes)) << count;
  }
}

TEST(Fletcher32Test, LargestWordsDoNotOverflowALane) {
  const std::vector<std::byte> bytes(std::size_t{1} << 20, std::byte{0xFF});
  EXPECT_EQ(fletcher32(bytes), by_definition(bytes));
  EXPECT_EQ(fletcher32(bytes), 0xFFFFFFFFU);  // 65535, not 0, stands for a sum that is no zero
}

TEST(Fletcher32Test, ZerosGiveZero) { EXPECT_EQ(fletcher32(std::vector<std::byte>(5000, std::byte{0})), 0U); }

TEST(Fletcher32Test, OneFlippedBitChangesIt) {
  auto bytes = pattern(1 << 16, 3);
  const std::uint32_t before = fletcher32(bytes);
  for (const std::size_t at : {std::size_t{0}, std::size_t{12345}, bytes.size() - 1}) {
    bytes[at] ^= std::byte{4};
    EXPECT_NE(fletcher32(bytes), before) << at;
    bytes[at] ^= std::byte{4};
  }
}

}  // namespace
}  // namespace dtrain::data
