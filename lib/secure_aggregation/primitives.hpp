#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dtrain::secure_aggregation {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;
template <std::size_t count>
using Block = std::array<std::byte, count>;
using PublicKey = Block<32>;  ///< Of X25519 or of Ed25519.
using Digest = Block<32>;
using Signature = Block<64>;
using Nonce = Block<12>;

/// 32 secret bytes: a private key, a seed or a key of a cipher. Wiped at the end.
class Secret {
 public:
  Secret() = default;
  explicit Secret(const Block<32>& bytes) : bytes_(bytes) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();
  Block<32>& bytes() { return bytes_; }
  const Block<32>& bytes() const { return bytes_; }

 private:
  Block<32> bytes_ = {};
};

// The functions of this file are those of libsodium. Where dtrain was built without it, each throws Error
// (exit code 2).

/// Source: FIPS 180-4.
Digest sha256(View bytes);

/// Overwrites `key`, of at most 255 * 32 bytes. Source: RFC 5869 with SHA-256.
void hkdf(View input, View salt, View info, std::span<std::byte> key);

/// Source of these two: RFC 7748. x25519() gives nothing where `other` is a point of small order, after which
/// the result would be no secret.
PublicKey x25519_public(const Secret& own);
std::optional<Secret> x25519(const Secret& own, const PublicKey& other);

/// Source of these three: RFC 8032, Ed25519. `seed` is the private key.
PublicKey ed25519_public(const Secret& seed);
Signature ed25519_sign(const Secret& seed, View message);
bool ed25519_verify(const PublicKey& signer, View message, const Signature& signature);

/// The ciphertext with its tag of 16 bytes. A pair of key and nonce may be used once. Source: RFC 8439,
/// section 2.8.
Bytes seal(const Secret& key, const Nonce& nonce, View plain, View associated);
/// The plain text, or nothing where key, nonce, associated bytes or ciphertext are not those of seal().
std::optional<Bytes> open(const Secret& key, const Nonce& nonce, View sealed, View associated);

/// Overwrites `bytes` with ChaCha20's stream from its block `block`, of 64 bytes, on. Source: RFC 8439,
/// section 2.4.
void chacha20(const Secret& key, const Nonce& nonce, std::uint32_t block, std::span<std::byte> bytes);

/// Whether two blocks are equal, in a time that does not depend on where they differ.
bool equal(const Block<32>& one, const Block<32>& other);

}  // namespace dtrain::secure_aggregation
