#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "privacy/keystream.hpp"
#include "secure_aggregation/session.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr std::size_t kBytes = 32;

/// `count` elements of a ring of 32 bits.
std::vector<std::uint32_t> words_of(View bytes) {
  std::vector<std::uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

/// Secrets of which each differs from the first in one bit of one byte. The bit is one that X25519 uses of
/// each byte.
std::vector<Secret> secrets_with_one_other_byte() {
  Secret first;
  for (std::size_t i = 0; i < kBytes; ++i) first.bytes()[i] = static_cast<std::byte>(17 * i + 3);
  std::vector<Secret> all(kBytes + 1, first);
  for (std::size_t i = 0; i < kBytes; ++i) all[i + 1].bytes()[i] ^= std::byte{0x08};
  return all;
}

/// No two of these may share a word in one place: by chance two do in one of 500,000 such lists, and the
/// secrets here are always the same.
void expect_nothing_in_common(const std::vector<std::vector<std::uint32_t>>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      ASSERT_EQ(all[i].size(), all[k].size());
      for (std::size_t word = 0; word < all[i].size(); ++word)
        EXPECT_NE(all[i][word], all[k][word]) << "secrets " << k << " and " << i << ", word " << word;
    }
  }
}

TEST(SeedsTest, EachByteOfASeedChangesTheWholeMask) {
  std::vector<std::vector<std::uint32_t>> masks;
  for (const auto& seed : secrets_with_one_other_byte()) {
    Bytes mask(64);
    add_mask(mask, seed, 32, Sign::plus);
    masks.push_back(words_of(mask));
  }
  expect_nothing_in_common(masks);
}

TEST(SeedsTest, EachByteOfAPrivateKeyChangesTheWholeSeedThatTwoClientsShare) {
  constexpr int kClients = 3;
  std::vector<Secret> identities(kClients);
  for (int client = 0; client < kClients; ++client)
    identities[static_cast<std::size_t>(client)].bytes()[0] = static_cast<std::byte>(client + 1);
  Settings settings{.round = 1, .length = 1, .minimum_survivors = 2};
  for (const auto& identity : identities) settings.identities.push_back(ed25519_public(identity));
  const auto own = secrets_with_one_other_byte();
  Roster roster;
  for (int client = 0; client < kClients; ++client) {
    Keys keys{.client = client, .mask_key = x25519_public(own[0]), .share_key = x25519_public(own[0])};
    keys.signature =
        ed25519_sign(identities[static_cast<std::size_t>(client)], signed_keys(settings.digest(), keys));
    roster.keys.push_back(keys);
  }
  const Session session(settings, roster);
  std::vector<std::vector<std::uint32_t>> seeds;
  for (const auto& key : own) seeds.push_back(words_of(mask_seed(settings, session, key, 0, 1).bytes()));
  expect_nothing_in_common(seeds);
}

TEST(SeedsTest, EachByteOfAKeyChangesAllThatAClientDraws) {  // self seeds, private keys, noise
  std::vector<std::vector<std::uint32_t>> drawn;
  for (const auto& key : secrets_with_one_other_byte()) {
    Bytes bytes(64);
    privacy::Keystream(key.bytes()).fill(bytes);
    drawn.push_back(words_of(bytes));
  }
  expect_nothing_in_common(drawn);
}

}  // namespace
}  // namespace dtrain::secure_aggregation
