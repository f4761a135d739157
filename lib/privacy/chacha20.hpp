#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::privacy {

/// Overwrites `bytes` with ChaCha20's stream from its block `block`, of 64 bytes, on: by wide_chacha20()
/// where the processor has its vectors, else by libsodium, with the same bytes. There only where dtrain was
/// built with libsodium. Throws Error where libsodium does not start. Source: RFC 8439, section 2.4.
void chacha20(const std::array<std::byte, 32>& key, const std::array<std::byte, 12>& nonce,
              std::uint32_t block, std::span<std::byte> bytes);

}  // namespace dtrain::privacy
