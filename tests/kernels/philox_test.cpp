#include "kernels/philox.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace dtrain::kernels {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers that come with Random123 for philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({{0, 0}, {0, 0, 0, 0}}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({{0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({{0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, EveryFieldOfTheKeyChangesTheInput) {
  const RandomKey key{.seed = 7, .purpose = Purpose::dropout, .major = 1, .minor = 2, .stream = 3};
  std::vector<RandomKey> others(5, key);
  others[0].seed = std::uint64_t{7} << 32;
  others[1].purpose = Purpose::sampling;
  others[2].major = 2;
  others[3].minor = 1;
  others[4].stream = 4;
  for (const RandomKey& other : others) EXPECT_NE(philox_block(other, 0), philox_block(key, 0));
  EXPECT_NE(philox_block(key, 1), philox_block(key, 0));
}

TEST(PhiloxTest, BlocksBeyondTheCounterWordMoveTheKeyAndLeaveThePurpose) {
  const RandomKey key{.seed = 7, .purpose = Purpose::dropout};
  const std::uint64_t turn = std::uint64_t{1} << kBlockBits;
  const PhiloxInput before = philox_input(key, turn - 1);
  const PhiloxInput after = philox_input(key, turn);
  EXPECT_EQ(after.counter[0] >> kBlockBits, static_cast<std::uint32_t>(Purpose::dropout));
  EXPECT_EQ(before.counter[0] >> kBlockBits, after.counter[0] >> kBlockBits);
  EXPECT_EQ(after.key[1], before.key[1] + 1);
}

TEST(PhiloxTest, ManyBlocksAtOnceEqualThemOneByOneAlsoWhereTheKeyMoves) {
  const RandomKey key{
      .seed = 0x123456789abcdef, .purpose = Purpose::dropout, .major = 5, .minor = 6, .stream = 7};
  const std::uint64_t turn = std::uint64_t{1} << kBlockBits;
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, turn - 5, turn + 1}) {
    constexpr std::uint64_t kBlocks = 27;
    std::vector<std::uint32_t> words(4 * kBlocks);
    philox_words(words.data(), kBlocks, key, first);
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      const Words expected = philox_block(key, first + block);
      for (std::size_t word = 0; word < 4; ++word) EXPECT_EQ(words[4 * block + word], expected[word]);
    }
  }
}

}  // namespace
}  // namespace dtrain::kernels
