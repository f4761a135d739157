#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dtrain::kernels {

/// Numbers in 8 bits with a dynamic tree of levels, relative to the largest of their block: many levels near
/// it, and fewer for each tenth below, down to some 1e-7 of it.
/// Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022, sections 1.3 and 2.1.
enum class Levels : std::uint8_t {
  with_sign,  ///< 127 levels of the scale's sign, 127 of the other one, 0, and the scale itself.
  positive,   ///< 254 levels, 0, and the scale itself. All but 0 keeps a level above 0: a root divides by it.
};

inline constexpr std::size_t kCodeBlock = 256;  ///< Numbers that share a scale.

/// What the codes 0 to 255 stand for, ascending, in multiples of the scale.
const std::array<float, 256>& code_values(Levels levels);

/// The codes [n] of one block, n at most kCodeBlock, each of the nearest level, the one nearer to 0 of two.
/// Returns the scale: of the numbers the largest in size, with its sign; the first of several. What has been
/// decoded has the same codes and scale again. The same bits on all processors. Numbers are finite.
float encode_block(std::uint8_t* codes, const float* values, std::size_t n, Levels levels);

/// values[i] = code_values(levels)[codes[i]] * scale.
void decode_block(float* values, const std::uint8_t* codes, float scale, std::size_t n, Levels levels);

}  // namespace dtrain::kernels
