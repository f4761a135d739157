#include "secure_aggregation/shamir.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

privacy::Keystream keystream(int seed) {
  Block<32> key = {};
  key[0] = static_cast<std::byte>(seed);
  return privacy::Keystream(key);
}

Secret drawn(privacy::Keystream& random) {
  Secret secret;
  random.fill(secret.bytes());
  return secret;
}

TEST(ShamirTest, AnyThresholdOfTheSharesGiveTheSecretBack) {
  std::mt19937 order(3);
  auto random = keystream(1);
  for (const auto& [threshold, holders] :
       {std::pair{1, 1}, {1, 5}, {2, 3}, {3, 3}, {7, 12}, {31, 61}, {128, 255}}) {
    const auto secret = drawn(random);
    auto shares = split_secret(secret, threshold, holders, random);
    ASSERT_EQ(static_cast<int>(shares.size()), holders);
    for (int trial = 0; trial < 3; ++trial) {
      std::shuffle(shares.begin(), shares.end(), order);
      const auto some = std::span(shares);
      EXPECT_EQ(join_secret(some.first(static_cast<std::size_t>(threshold))).bytes(), secret.bytes());
      EXPECT_EQ(join_secret(some).bytes(), secret.bytes());
      if (threshold > 1) {
        EXPECT_NE(join_secret(some.first(static_cast<std::size_t>(threshold - 1))).bytes(), secret.bytes());
      }
    }
  }
}

TEST(ShamirTest, OneShareLessFitsEverySecret) {
  // t - 1 shares and any other secret in place of the missing one lie on a polynomial too: the share that it
  // gives to a further holder joins with them to that secret.
  auto random = keystream(2);
  constexpr int kThreshold = 4;
  const auto shares = split_secret(drawn(random), kThreshold, 6, random);
  const auto other = drawn(random);
  // Through shares 1 to 3 and the other secret at 0; place 5 then follows from moving the origin there.
  std::vector<Share> moved;
  for (int i = 0; i < kThreshold - 1; ++i) {
    moved.push_back({static_cast<std::uint8_t>(shares[static_cast<std::size_t>(i)].place ^ 5),
                     shares[static_cast<std::size_t>(i)].bytes});
  }
  moved.push_back({5, other.bytes()});  // 0 ^ 5
  std::vector<Share> forged(shares.begin(), shares.begin() + kThreshold - 1);
  forged.push_back({5, join_secret(moved).bytes()});
  EXPECT_EQ(join_secret(forged).bytes(), other.bytes());
}

TEST(ShamirTest, TheFieldIsThatOfAes) {
  // Tables from the generator 3, which shamir.cpp does without.
  std::array<int, 256> power = {};
  std::array<int, 256> log = {};
  int value = 1;
  for (int i = 0; i < 255; ++i) {
    power[static_cast<std::size_t>(i)] = value;
    log[static_cast<std::size_t>(value)] = i;
    value ^= value << 1;
    if (value > 255) value ^= 0x11B;
  }
  const auto times = [&](int one, int other) {
    return one == 0 || other == 0
               ? 0
               : power[static_cast<std::size_t>(
                     (log[static_cast<std::size_t>(one)] + log[static_cast<std::size_t>(other)]) % 255)];
  };
  EXPECT_EQ(times(0x57, 0x83), 0xC1);  // FIPS 197, section 4.2
  auto random = keystream(3);
  const auto secret = drawn(random);
  const auto shares = split_secret(secret, 2, 255, random);  // secret + place * slope
  for (std::size_t byte = 0; byte < 32; ++byte) {
    const int at_zero = static_cast<int>(secret.bytes()[byte]);
    const int slope = static_cast<int>(shares[0].bytes[byte]) ^ at_zero;
    for (const auto& share : shares) {
      EXPECT_EQ(static_cast<int>(share.bytes[byte]), at_zero ^ times(slope, share.place));
    }
  }
}

TEST(ShamirTest, WrongCountsAreRefused) {
  auto random = keystream(4);
  for (const auto& [threshold, holders] : {std::pair{0, 3}, {4, 3}, {2, 256}}) {
    EXPECT_THROW(split_secret(Secret(), threshold, holders, random), Error);
  }
}

}  // namespace
}  // namespace dtrain::secure_aggregation
