#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "privacy/keystream.hpp"
#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

inline constexpr int kMostHolders = 255;  ///< A field of 256 elements has so many places besides 0.

/// One holder's part of a secret. Fewer than the threshold say nothing about it.
struct Share {
  std::uint8_t place = 0;  ///< In [1, 255], different for each holder.
  Block<32> bytes = {};
};

/// Shares of places 1 to `holders`: each byte of the secret is the value at 0 of a random polynomial of
/// degree threshold - 1 over GF(256), and share k has its values at k. No step depends on a secret byte, so
/// that its time says nothing. 1 <= threshold <= holders <= kMostHolders. Source: Shamir 1979; the field is
/// that of FIPS 197 (AES).
std::vector<Share> split_secret(const Secret& secret, int threshold, int holders, privacy::Keystream& random);

/// The secret from at least `threshold` shares with different places; with fewer, or with a share that is not
/// of this secret, 32 bytes that mean nothing.
Secret join_secret(std::span<const Share> shares);

}  // namespace dtrain::secure_aggregation
