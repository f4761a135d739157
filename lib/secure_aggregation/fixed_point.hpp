#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

/// How numbers become elements of the ring of integers modulo 2^ring_bits, in which the masks cancel.
struct FixedPoint {
  int ring_bits = 32;   ///< 32 or 64.
  int value_bits = 16;  ///< Of one value, its sign included.
  int weight_bits = 8;  ///< A client's weight is an integer of [1, 2^weight_bits - 1], or 1 where this is 0.
  double largest = 1;   ///< Values beyond +-largest become +-largest, and are counted.

  /// The integer of `largest`: 2^(value_bits - 1) - 1.
  std::int64_t largest_integer() const { return (std::int64_t{1} << (value_bits - 1)) - 1; }
  std::uint64_t largest_weight() const {
    return weight_bits == 0 ? 1 : (std::uint64_t{1} << weight_bits) - 1;
  }

  /// Throws Error (exit code 2) unless sums of `clients` weighted values, and `noise` more on either side,
  /// stay within the ring: value_bits + weight_bits + log2(clients) bits.
  void validate(int clients, double noise) const;
};

/// What a client's values became.
struct Encoded {
  Bytes words;                ///< [values + 1] elements of the ring, little-endian; the last is the weight.
  std::size_t saturated = 0;  ///< Values that were beyond `largest`.
};

/// Each element is weight * round(value / largest * largest_integer), the last one the weight itself.
/// Throws Error (exit code 2) with `where` as its subject for a value that is NaN or a weight out of range.
Encoded encode(const FixedPoint& format, std::span<const float> values, std::uint64_t weight,
               const char* where);

/// The element `index` of the ring as a signed integer.
std::int64_t element(const FixedPoint& format, View words, std::size_t index);

/// Replaces the element `index` of the ring.
void set_element(const FixedPoint& format, std::span<std::byte> words, std::size_t index, std::int64_t value);

/// The number that an integer of the ring, divided by `weight`, stands for.
double number(const FixedPoint& format, std::int64_t sum, std::int64_t weight);

}  // namespace dtrain::secure_aggregation
