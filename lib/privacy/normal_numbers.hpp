#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::privacy {

/// Independent standard normal numbers from uniform bits, by Box and Muller: words [2 n] -> values [2 n], a
/// pair from each pair, within 1e-13 of the exact function. About 52 bits of each word count; no value is
/// beyond 8.5.
void normal_numbers(const std::uint64_t* words, double* values, std::size_t pairs);

}  // namespace dtrain::privacy
