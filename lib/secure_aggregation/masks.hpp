#pragma once

#include <cstddef>
#include <span>

#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

enum class Sign { plus, minus };

/// Adds the elements of a ring of `ring_bits` (32 or 64), little-endian, or subtracts them: into[i] +-=
/// words[i]. Both have the same size.
void add_words(std::span<std::byte> into, View words, int ring_bits, Sign sign = Sign::plus);

/// Adds the mask of a seed or subtracts it: ChaCha20's stream under the seed, nonce 0, as elements of the
/// ring. A seed serves one vector.
void add_mask(std::span<std::byte> into, const Secret& seed, int ring_bits, Sign sign);

}  // namespace dtrain::secure_aggregation
