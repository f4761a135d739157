#include "privacy/secure_aggregation/secrets.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::privacy {

struct SecretAccess {
  static std::byte* bytes(Secret& secret) { return secret.bytes_.data(); }
};

namespace {

const unsigned char* plain(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* writable(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void require_sodium() {
  require(sodium_init() >= 0, "gives no random numbers",
          {.subject = "libsodium", .advice = "check /dev/urandom"});
}

using Hash = std::array<std::byte, crypto_auth_hmacsha256_BYTES>;

/// Of the parts in turn.
Hash hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> parts) {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, plain(key.data()), key.size());
  for (const auto& part : parts) crypto_auth_hmacsha256_update(&state, plain(part.data()), part.size());
  Hash hash;
  crypto_auth_hmacsha256_final(&state, writable(hash.data()));
  sodium_memzero(&state, sizeof(state));
  return hash;
}

constexpr std::size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr std::size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == Secret::kSize);
static_assert(crypto_scalarmult_BYTES == Secret::kSize);

}  // namespace

Secret::Secret(std::span<const std::byte> bytes) {
  require(bytes.size() == kSize, "has another size", {.subject = "a secret of 256 bits"});
  std::ranges::copy(bytes, bytes_.begin());
}

Secret Secret::random() {
  require_sodium();
  Secret secret;
  randombytes_buf(secret.bytes_.data(), kSize);
  return secret;
}

Secret::~Secret() { sodium_memzero(bytes_.data(), kSize); }

bool Secret::operator==(const Secret& other) const {
  return sodium_memcmp(bytes_.data(), other.bytes_.data(), kSize) == 0;
}

KeyPair KeyPair::of(const Secret& secret) {
  require_sodium();
  KeyPair pair{.secret = secret};
  crypto_scalarmult_base(writable(pair.open.data()), plain(pair.secret.bytes().data()));
  return pair;
}

KeyPair KeyPair::random() { return of(Secret::random()); }

Secret x25519(const Secret& secret, const PublicKey& open) {
  require_sodium();
  Secret shared;
  const int failed = crypto_scalarmult(writable(SecretAccess::bytes(shared)), plain(secret.bytes().data()),
                                       plain(open.data()));
  require(failed == 0, "is of small order, with which every secret is the same", {.subject = "a public key"});
  return shared;
}

Secret agreed_secret(const KeyPair& own, const PublicKey& other, std::string_view purpose) {
  const auto shared = x25519(own.secret, other);
  // Both sides name the keys in one order.
  const auto& [first, second] = std::minmax(own.open, other);
  Bytes info(bytes_of(purpose).begin(), bytes_of(purpose).end());
  info.insert(info.end(), first.begin(), first.end());
  info.insert(info.end(), second.begin(), second.end());
  auto bytes = hkdf_sha256(shared.bytes(), bytes_of("dtrain secure aggregation 1"), info, Secret::kSize);
  const Secret secret(bytes);
  sodium_memzero(bytes.data(), bytes.size());
  return secret;
}

Bytes hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                  std::span<const std::byte> info, std::size_t length) {
  constexpr std::size_t kMostBlocks = 255;
  require_sodium();
  require(length <= kMostBlocks * sizeof(Hash), "is longer than HKDF gives", {.subject = "a key"});
  const Hash zeros = {};
  auto key = hmac_sha256(salt.empty() ? std::span<const std::byte>(zeros) : salt, {secret});
  Bytes all;
  Hash block = {};
  for (std::size_t number = 1; all.size() < length; ++number) {
    const std::array<std::byte, 1> counter = {static_cast<std::byte>(number)};
    const auto before = number == 1 ? std::span<const std::byte>() : std::span<const std::byte>(block);
    block = hmac_sha256(key, {before, info, counter});
    all.insert(all.end(), block.begin(), block.end());
  }
  all.resize(length);
  sodium_memzero(key.data(), key.size());
  sodium_memzero(block.data(), block.size());
  return all;
}

Bytes seal(const Secret& key, std::span<const std::byte> message, std::string_view context) {
  require_sodium();
  Bytes sealed(kNonceBytes + message.size() + kTagBytes);
  randombytes_buf(sealed.data(), kNonceBytes);
  crypto_aead_xchacha20poly1305_ietf_encrypt(writable(sealed.data() + kNonceBytes), nullptr,
                                             plain(message.data()), message.size(),
                                             plain(bytes_of(context).data()), context.size(), nullptr,
                                             plain(sealed.data()), plain(key.bytes().data()));
  return sealed;
}

Bytes open_sealed(const Secret& key, std::span<const std::byte> sealed, std::string_view context) {
  require_sodium();
  const ErrorContext wrong{.subject = "a sealed message", .advice = "leave its sender out of the round"};
  require(sealed.size() >= kNonceBytes + kTagBytes, "is cut off", wrong);
  Bytes message(sealed.size() - kNonceBytes - kTagBytes);
  const int failed = crypto_aead_xchacha20poly1305_ietf_decrypt(
      writable(message.data()), nullptr, nullptr, plain(sealed.data() + kNonceBytes),
      sealed.size() - kNonceBytes, plain(bytes_of(context).data()), context.size(), plain(sealed.data()),
      plain(key.bytes().data()));
  require(failed == 0, "does not authenticate", wrong);
  return message;
}

}  // namespace dtrain::privacy
