#include "privacy/secure_aggregation/secrets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

Bytes bytes_of_hex(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

PublicKey key_of_hex(const std::string& hex) {
  PublicKey key = {};
  std::ranges::copy(bytes_of_hex(hex), key.begin());
  return key;
}

Secret secret_of_hex(const std::string& hex) { return Secret(bytes_of_hex(hex)); }

/// RFC 7748, section 5.2: the first vector, and one iteration.
TEST(SecretsTest, X25519HasTheAnswersOfItsRfc) {
  EXPECT_EQ(x25519(secret_of_hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
                   key_of_hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")),
            secret_of_hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"));
  const std::string nine = "0900000000000000000000000000000000000000000000000000000000000000";
  EXPECT_EQ(x25519(secret_of_hex(nine), key_of_hex(nine)),
            secret_of_hex("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"));
}

/// RFC 5869, appendices A.1 and A.3.
TEST(SecretsTest, HkdfHasTheAnswersOfItsRfc) {
  EXPECT_EQ(
      hkdf_sha256(bytes_of_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"),
                  bytes_of_hex("000102030405060708090a0b0c"), bytes_of_hex("f0f1f2f3f4f5f6f7f8f9"), 42),
      bytes_of_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"));
  EXPECT_EQ(
      hkdf_sha256(bytes_of_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"), {}, {}, 42),
      bytes_of_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"));
  EXPECT_THROW(hkdf_sha256({}, {}, {}, 255 * 32 + 1), Error);
}

TEST(SecretsTest, BothSidesAgreeAndNoThirdOne) {
  const auto one = KeyPair::random();
  const auto other = KeyPair::random();
  const auto third = KeyPair::random();
  EXPECT_EQ(agreed_secret(one, other.open, "mask"), agreed_secret(other, one.open, "mask"));
  EXPECT_FALSE(agreed_secret(one, other.open, "mask") == agreed_secret(one, other.open, "share"));
  EXPECT_FALSE(agreed_secret(one, other.open, "mask") == agreed_secret(third, other.open, "mask"));
  EXPECT_THROW(agreed_secret(one, PublicKey{}, "mask"), Error) << "a key of small order";
}

TEST(SecretsTest, SealedMessagesOpenUnchangedOrNotAtAll) {
  const auto key = Secret::random();
  const auto message = bytes_of_hex("00112233445566778899");
  const auto sealed = seal(key, message, "from 3 to 5, round 7");
  EXPECT_EQ(open_sealed(key, sealed, "from 3 to 5, round 7"), message);
  EXPECT_NE(sealed, seal(key, message, "from 3 to 5, round 7")) << "a nonce of its own";
  EXPECT_THROW(open_sealed(key, sealed, "from 3 to 5, round 8"), Error);
  EXPECT_THROW(open_sealed(Secret::random(), sealed, "from 3 to 5, round 7"), Error);
  EXPECT_THROW(open_sealed(key, std::span(sealed).first(20), "from 3 to 5, round 7"), Error);
  for (const std::size_t place : {std::size_t{0}, sealed.size() / 2, sealed.size() - 1}) {
    auto changed = sealed;
    changed[place] ^= std::byte{1};
    EXPECT_THROW(open_sealed(key, changed, "from 3 to 5, round 7"), Error) << place;
  }
}

TEST(SecretsTest, ASecretHasItsSize) { EXPECT_THROW(Secret(Bytes(31)), Error); }

}  // namespace
}  // namespace dtrain::privacy
