#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::privacy {

/// Bytes that wide_chacha20() makes at a time: 16 blocks side by side, one in each lane of a vector.
inline constexpr std::size_t kWideBytes = 1024;

/// Whether this processor has vectors of 512 bits, with which wide_chacha20() is faster than
/// libsodium 1.0.18.
bool has_wide_vectors() noexcept;

/// Overwrites `bytes`, a multiple of kWideBytes, with ChaCha20's stream from its block `block` on, the same
/// bytes as libsodium's. Whole numbers, no branches and no tables: its time says nothing of the key. To be
/// called where has_wide_vectors(). Source: RFC 8439, section 2.4.
void wide_chacha20(const std::array<std::byte, 32>& key, const std::array<std::byte, 12>& nonce,
                   std::uint32_t block, std::span<std::byte> bytes);

}  // namespace dtrain::privacy
