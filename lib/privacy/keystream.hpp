#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::privacy {

/// Bytes that nothing can tell from random ones: ChaCha20 (RFC 8439) under a key of 256 bits from the system.
/// The key is never written anywhere, and is wiped at the end.
class Keystream {
 public:
  /// Throws Error (exit code 2) where libsodium was not there when dtrain was built.
  Keystream();
  /// Under this key, for tests with known answers.
  explicit Keystream(const std::array<std::byte, 32>& key);
  ~Keystream();
  Keystream(const Keystream&) = delete;
  Keystream& operator=(const Keystream&) = delete;

  /// Overwrites `bytes`, less than 2^38, with a part of the stream that no other call gets: the nonce counts
  /// the calls.
  void fill(std::span<std::byte> bytes);

 private:
  std::array<std::byte, 32> key_ = {};
  std::uint64_t calls_ = 0;
};

}  // namespace dtrain::privacy
