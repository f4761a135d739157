#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dtrain::privacy {

using Bytes = std::vector<std::byte>;

/// 256 bits that are secret, wiped when they go.
class Secret {
 public:
  static constexpr std::size_t kSize = 32;
  Secret() = default;
  explicit Secret(std::span<const std::byte> bytes);  ///< Throws Error unless there are kSize.
  static Secret random();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const std::byte, kSize> bytes() const { return bytes_; }
  /// In time that does not depend on the bytes.
  bool operator==(const Secret& other) const;

 private:
  friend struct SecretAccess;
  std::array<std::byte, kSize> bytes_ = {};
};

using PublicKey = std::array<std::byte, 32>;

/// For agreeing on secrets: X25519 (RFC 7748).
struct KeyPair {
  Secret secret;
  PublicKey open = {};
  static KeyPair random();
  static KeyPair of(const Secret& secret);
};

/// What the owners of both pairs, and no others, can compute: HKDF of X25519's result, bound to `purpose` and
/// both public keys. Throws Error for a public key of small order.
Secret agreed_secret(const KeyPair& own, const PublicKey& other, std::string_view purpose);

/// X25519 itself. Throws Error where the result is zero.
Secret x25519(const Secret& secret, const PublicKey& open);

/// HKDF with SHA-256 (RFC 5869), at most 255 x 32 bytes.
Bytes hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                  std::span<const std::byte> info, std::size_t length);

/// XChaCha20-Poly1305 under a random nonce, which the result begins with; `context` is authenticated, not
/// encrypted.
Bytes seal(const Secret& key, std::span<const std::byte> message, std::string_view context);
/// Throws Error where the message was not sealed with this key and context, or was changed. It says nothing
/// of it.
Bytes open_sealed(const Secret& key, std::span<const std::byte> sealed, std::string_view context);

}  // namespace dtrain::privacy
