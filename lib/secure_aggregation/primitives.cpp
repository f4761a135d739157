#include "secure_aggregation/primitives.hpp"

#include <sodium.h>

#include <algorithm>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

/// Chooses libsodium's code for this processor; without it the slowest runs.
void start_sodium() {
  require(sodium_init() >= 0, "cannot start", {.subject = "libsodium", .advice = "check /dev/urandom"});
}

Digest hmac(View key, std::initializer_list<View> parts) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key.data()), key.size());
  for (const auto part : parts) crypto_auth_hmacsha256_update(&state, raw(part.data()), part.size());
  Digest digest;
  crypto_auth_hmacsha256_final(&state, raw(digest.data()));
  sodium_memzero(&state, sizeof(state));
  return digest;
}

}  // namespace

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

Digest sha256(View bytes) {
  Digest digest;
  crypto_hash_sha256(raw(digest.data()), raw(bytes.data()), bytes.size());
  return digest;
}

void hkdf(View input, View salt, View info, std::span<std::byte> key) {
  require(key.size() <= 255 * sizeof(Digest), "a key is longer than RFC 5869 allows", {.subject = "HKDF"});
  const Secret extracted(hmac(salt, {input}));
  Secret last;
  for (std::uint8_t count = 1; !key.empty(); ++count) {
    const auto number = std::byte{count};
    last =
        Secret(hmac(extracted.bytes(), {count == 1 ? View() : View(last.bytes()), info, View(&number, 1)}));
    const auto size = std::min(last.bytes().size(), key.size());
    std::copy_n(last.bytes().begin(), size, key.begin());
    key = key.subspan(size);
  }
}

PublicKey x25519_public(const Secret& own) {
  start_sodium();
  PublicKey key;
  crypto_scalarmult_base(raw(key.data()), raw(own.bytes().data()));
  return key;
}

std::optional<Secret> x25519(const Secret& own, const PublicKey& other) {
  start_sodium();
  Secret shared;
  if (crypto_scalarmult(raw(shared.bytes().data()), raw(own.bytes().data()), raw(other.data())) != 0)
    return {};
  return shared;
}

PublicKey ed25519_public(const Secret& seed) {
  start_sodium();
  PublicKey key;
  Block<64> pair;
  crypto_sign_seed_keypair(raw(key.data()), raw(pair.data()), raw(seed.bytes().data()));
  sodium_memzero(pair.data(), pair.size());
  return key;
}

Signature ed25519_sign(const Secret& seed, View message) {
  start_sodium();
  PublicKey key;
  Block<64> pair;
  crypto_sign_seed_keypair(raw(key.data()), raw(pair.data()), raw(seed.bytes().data()));
  Signature signature;
  crypto_sign_detached(raw(signature.data()), nullptr, raw(message.data()), message.size(), raw(pair.data()));
  sodium_memzero(pair.data(), pair.size());
  return signature;
}

bool ed25519_verify(const PublicKey& signer, View message, const Signature& signature) {
  start_sodium();
  return crypto_sign_verify_detached(raw(signature.data()), raw(message.data()), message.size(),
                                     raw(signer.data())) == 0;
}

Bytes seal(const Secret& key, const Nonce& nonce, View plain, View associated) {
  start_sodium();
  Bytes sealed(plain.size() + crypto_aead_chacha20poly1305_ietf_ABYTES);
  crypto_aead_chacha20poly1305_ietf_encrypt(raw(sealed.data()), nullptr, raw(plain.data()), plain.size(),
                                            raw(associated.data()), associated.size(), nullptr,
                                            raw(nonce.data()), raw(key.bytes().data()));
  return sealed;
}

std::optional<Bytes> open(const Secret& key, const Nonce& nonce, View sealed, View associated) {
  start_sodium();
  if (sealed.size() < crypto_aead_chacha20poly1305_ietf_ABYTES) return {};
  Bytes plain(sealed.size() - crypto_aead_chacha20poly1305_ietf_ABYTES);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(raw(plain.data()), nullptr, nullptr, raw(sealed.data()),
                                                sealed.size(), raw(associated.data()), associated.size(),
                                                raw(nonce.data()), raw(key.bytes().data())) != 0) {
    return {};
  }
  return plain;
}

void chacha20(const Secret& key, const Nonce& nonce, std::uint32_t block, std::span<std::byte> bytes) {
  start_sodium();
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  crypto_stream_chacha20_ietf_xor_ic(raw(bytes.data()), raw(bytes.data()), bytes.size(), raw(nonce.data()),
                                     block, raw(key.bytes().data()));
}

bool equal(const Block<32>& one, const Block<32>& other) {
  return sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace dtrain::secure_aggregation
