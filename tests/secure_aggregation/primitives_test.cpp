#include "secure_aggregation/primitives.hpp"

#include <gtest/gtest.h>

#include <string>

#include "secure_aggregation/hex.hpp"

namespace dtrain::secure_aggregation {
namespace {

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string key_by_hkdf(View input, View salt, View info, std::size_t length) {
  Bytes key(length);
  hkdf(input, salt, info, key);
  return to_hex(key);
}

Secret secret_from(std::string_view hex) { return Secret(block_from_hex<32>(hex)); }

TEST(PrimitivesTest, Sha256HasTheKnownAnswer) {  // FIPS 180-4, example "abc"
  EXPECT_EQ(to_hex(sha256(bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(PrimitivesTest, X25519HasTheAnswersOfRfc7748) {  // section 5.2
  const auto product = [](std::string_view own, std::string_view other) {
    return to_hex(x25519(secret_from(own), block_from_hex<32>(other))->bytes());
  };
  EXPECT_EQ(product("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                    "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
  EXPECT_EQ(product("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                    "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"),
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
}

TEST(PrimitivesTest, X25519RepeatedHasTheAnswersOfRfc7748) {  // section 5.2
  auto own = secret_from("0900000000000000000000000000000000000000000000000000000000000000");
  auto other = own;
  for (int round = 1; round <= 1000; ++round) {
    const auto next = x25519(own, other.bytes());
    other = own;
    own = *next;
    if (round == 1) {
      EXPECT_EQ(to_hex(own.bytes()), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }
  }
  EXPECT_EQ(to_hex(own.bytes()), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

TEST(PrimitivesTest, BothSidesOfX25519AgreeAndSmallOrderIsRefused) {
  const auto one = secret_from("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
  EXPECT_EQ(to_hex(x25519_public(one)),
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");  // 6.1
  const auto other = secret_from("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d");
  EXPECT_EQ(x25519(one, x25519_public(other))->bytes(), x25519(other, x25519_public(one))->bytes());
  EXPECT_FALSE(x25519(one, PublicKey{}));
}

TEST(PrimitivesTest, HkdfHasTheAnswersOfRfc5869) {  // appendix A.1 to A.3
  const auto input = from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b");
  EXPECT_EQ(key_by_hkdf(input, from_hex("000102030405060708090a0b0c"), from_hex("f0f1f2f3f4f5f6f7f8f9"), 42),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  EXPECT_EQ(key_by_hkdf(input, {}, {}, 42),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
  Bytes counted[3];  // 00 to 4f, 60 to af, b0 to ff
  for (int i = 0; i < 80; ++i) {
    counted[0].push_back(static_cast<std::byte>(i));
    counted[1].push_back(static_cast<std::byte>(0x60 + i));
    counted[2].push_back(static_cast<std::byte>(0xb0 + i));
  }
  EXPECT_EQ(key_by_hkdf(counted[0], counted[1], counted[2], 82),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
            "da3275600c"
            "2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}

TEST(PrimitivesTest, ChaCha20HasTheAnswersOfRfc8439) {
  Block<64> stream = {};
  chacha20(secret_from("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"),
           block_from_hex<12>("000000090000004a00000000"), 1, stream);  // section 2.3.2
  EXPECT_EQ(to_hex(stream),
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
  chacha20(Secret(), Nonce{}, 0, stream);  // appendix A.1, vector 1
  EXPECT_EQ(to_hex(stream),
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586");
}

TEST(PrimitivesTest, SealHasTheAnswerOfRfc8439) {  // section 2.8.2
  const auto key = secret_from("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f");
  const auto nonce = block_from_hex<12>("070000004041424344454647");
  const auto associated = from_hex("50515253c0c1c2c3c4c5c6c7");
  const auto plain = bytes_of(
      "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen "
      "would be "
      "it.");
  const auto sealed = seal(key, nonce, plain, associated);
  EXPECT_EQ(to_hex(sealed),
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
            "1a71de0a9e06"
            "0b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b"
            "7a9de576d265"
            "86cec64b61161ae10b594f09e26a7e902ecbd0600691");
  EXPECT_EQ(open(key, nonce, sealed, associated), plain);
  for (std::size_t i = 0; i < sealed.size(); i += 13) {
    auto wrong = sealed;
    wrong[i] ^= std::byte{1};
    EXPECT_FALSE(open(key, nonce, wrong, associated));
  }
  EXPECT_FALSE(open(key, nonce, sealed, {}));
  EXPECT_FALSE(open(key, Nonce{}, sealed, associated));
  EXPECT_FALSE(open(key, nonce, View(sealed).first(15), associated));
}

TEST(PrimitivesTest, Ed25519HasTheAnswersOfRfc8032) {  // section 7.1, tests 1 and 2
  const auto one = secret_from("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
  EXPECT_EQ(to_hex(ed25519_public(one)), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_EQ(to_hex(ed25519_sign(one, {})),
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
            "d25bf5f0595b"
            "be24655141438e7a100b");
  const auto two = secret_from("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb");
  const auto message = from_hex("72");
  auto signature = ed25519_sign(two, message);
  EXPECT_EQ(to_hex(signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
            "387b2eaeb430"
            "2aeeb00d291612bb0c00");
  EXPECT_TRUE(ed25519_verify(ed25519_public(two), message, signature));
  EXPECT_FALSE(ed25519_verify(ed25519_public(one), message, signature));
  signature[3] ^= std::byte{1};
  EXPECT_FALSE(ed25519_verify(ed25519_public(two), message, signature));
}

}  // namespace
}  // namespace dtrain::secure_aggregation
