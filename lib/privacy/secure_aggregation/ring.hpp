#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "privacy/secure_aggregation/secrets.hpp"

namespace dtrain::privacy {

/// Numbers modulo 2^64 that stand for real ones, such that the weighted sum of all clients fits: value bits,
/// weight bits and the clients' count are proved to be at most 64 when it is made.
class Ring {
 public:
  struct Extents {
    double largest = 1;               ///< Of the absolute values.
    int fraction_bits = 24;           ///< Values are rounded to multiples of 2^-fraction_bits.
    std::int64_t largest_weight = 1;  ///< Of a client; a weighted value is the value times it.
    std::int64_t clients = 1;         ///< That may be added up.
  };
  /// Throws Error (exit code 2) where a sum of so many could wrap around.
  explicit Ring(const Extents& extents);

  /// values [n] times `weight`, rounded. Throws Error where one is not finite or larger than
  /// Extents::largest: it is never cut to it in silence.
  std::vector<std::uint64_t> encoded(std::span<const double> values, std::int64_t weight) const;
  /// Of a sum of encoded values, divided by the sum of the weights.
  std::vector<double> decoded(std::span<const std::uint64_t> sum, std::int64_t weights) const;

 private:
  Extents extents_;
};

/// Adds to `values`, or takes away, the numbers that ChaCha20 makes of the seed: all its 256 bits are the
/// key. `round` is the nonce; a seed serves each round once.
enum class Sign { plus, minus };
void add_mask(std::span<std::uint64_t> values, const Secret& seed, std::uint64_t round, Sign sign);

}  // namespace dtrain::privacy
