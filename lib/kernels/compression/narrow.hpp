#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::kernels {

/// Numbers in 16 or 8 bits. Each is rounded up or down by chance, the nearer one more often, so that the mean
/// over the chances is the number itself; a number that the type has stays as it is. `chances` [n]: 16 random
/// bits for each. The same bits on all processors.
/// Source: Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015.

/// bfloat16 [n]. Finite numbers stay finite, and others stay what they are.
void narrow_to_bfloat16(std::uint16_t* out, const float* values, const std::uint16_t* chances, std::size_t n);
void widen_bfloat16(float* out, const std::uint16_t* values, std::size_t n);

/// IEEE half [n] of values * factor, each below 32768 in size.
void narrow_to_float16(std::uint16_t* out, const float* values, float factor, const std::uint16_t* chances,
                       std::size_t n);
/// values * factor. `values` are finite.
void widen_float16(float* out, const std::uint16_t* values, float factor, std::size_t n);

/// Multiples of `scale` [n], which is above 0, and at least a 127th of the largest value's size.
void narrow_to_int8(std::int8_t* out, const float* values, float scale, const std::uint16_t* chances,
                    std::size_t n);
void widen_int8(float* out, const std::int8_t* values, float scale, std::size_t n);

}  // namespace dtrain::kernels
