#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::privacy {

/// Adds deviation x an independent standard normal number to each of `values` [2 pairs], by Box and Muller in
/// floats: the pair from lengths[i] and turns[i], uniform bits, is that of values i and pairs + i. 52 bits of
/// a length count, so that no number is beyond 8.5, and all 32 of a turn; a number is within 1e-6 of the
/// exact function before it is rounded with what it is added to. Not the same bits on all processors.
void add_normal_floats(const std::uint64_t* lengths, const std::uint32_t* turns, float deviation,
                       float* values, std::size_t pairs);

}  // namespace dtrain::privacy
