#include "privacy/secure_aggregation/shares.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

TEST(SharesTest, AnyThresholdOfThemGivesTheSecretBack) {
  std::mt19937 random(5);
  for (const auto& [count, threshold] : {std::pair{1, 1}, {2, 2}, {5, 3}, {30, 20}, {255, 128}}) {
    const auto secret = Secret::random();
    auto shares = split(secret, count, threshold);
    ASSERT_EQ(std::ssize(shares), count);
    for (int i = 0; i < 3; ++i) {
      std::ranges::shuffle(shares, random);
      const std::vector<Share> some(shares.begin(), shares.begin() + threshold);
      EXPECT_EQ(joined(some, threshold), secret) << count << " " << threshold;
    }
    EXPECT_EQ(joined(shares, threshold), secret) << "more than are needed";
  }
}

TEST(SharesTest, FewerSayNothing) {
  // With one share of two the other one decides the secret's first byte: each of its values once.
  const auto secret = Secret::random();
  auto shares = split(secret, 3, 2);
  std::set<int> seen;
  for (int value = 0; value < 256; ++value) {
    Bytes other(Secret::kSize);
    other[0] = static_cast<std::byte>(value);
    const auto guess = joined({shares[0], {shares[1].place, Secret(other)}}, 2);
    seen.insert(std::to_integer<int>(guess.bytes()[0]));
  }
  EXPECT_EQ(seen.size(), 256U);
  EXPECT_THROW(joined({shares[0]}, 2), Error);
  EXPECT_THROW(joined({shares[0], shares[0]}, 2), Error);
}

TEST(SharesTest, ThresholdsThatCannotBeAreRefused) {
  const auto secret = Secret::random();
  EXPECT_THROW(split(secret, 3, 4), Error) << "above the clients";
  EXPECT_THROW(split(secret, 4, 2), Error) << "not above half";
  EXPECT_THROW(split(secret, 256, 200), Error);
  EXPECT_THROW(split(secret, 0, 0), Error);
}

}  // namespace
}  // namespace dtrain::privacy
