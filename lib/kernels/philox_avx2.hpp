#pragma once

#include <cstdint>

#include "kernels/philox_rounds.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dtrain::kernels {

/// Whether the eight blocks from `first_block` on have one key: otherwise they are computed one by one.
constexpr bool one_key(std::uint64_t first_block) {
  return (first_block >> kBlockBits) == ((first_block + 7) >> kBlockBits);
}

#if defined(__x86_64__)

struct Products {
  __m256i low;
  __m256i high;
};

/// `word` in all eight lanes.
__attribute__((target("avx2"))) inline __m256i all(std::uint32_t word) {
  return _mm256_set1_epi32(static_cast<int>(word));
}

/// The lower and upper halves of eight 32 x 32 bit products.
__attribute__((target("avx2"))) inline Products multiply(__m256i a, __m256i b) {
  const __m256i even = _mm256_mul_epu32(a, b);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  return {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA),
          _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA)};
}

/// The block of `input` and its seven successors, which must share its key: 32 words, block by block.
__attribute__((target("avx2"))) inline void philox_eight_blocks(std::uint32_t* words,
                                                                const PhiloxInput& input) {
  __m256i c0 = _mm256_add_epi32(all(input.counter[0]), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i c1 = all(input.counter[1]);
  __m256i c2 = all(input.counter[2]);
  __m256i c3 = all(input.counter[3]);
  const __m256i multiplier0 = all(kPhiloxMultiplier0);
  const __m256i multiplier1 = all(kPhiloxMultiplier1);
  std::uint32_t k0 = input.key[0];
  std::uint32_t k1 = input.key[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Products p0 = multiply(c0, multiplier0);
    const Products p1 = multiply(c2, multiplier1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(p1.high, c1), all(k0));
    c1 = p1.low;
    c2 = _mm256_xor_si256(_mm256_xor_si256(p0.high, c3), all(k1));
    c3 = p0.low;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  // A lane is a block; a block's four words belong side by side.
  const __m256i low01 = _mm256_unpacklo_epi32(c0, c1);   // blocks 0 1 | 4 5
  const __m256i high01 = _mm256_unpackhi_epi32(c0, c1);  // blocks 2 3 | 6 7
  const __m256i low23 = _mm256_unpacklo_epi32(c2, c3);
  const __m256i high23 = _mm256_unpackhi_epi32(c2, c3);
  const __m256i b04 = _mm256_unpacklo_epi64(low01, low23);
  const __m256i b15 = _mm256_unpackhi_epi64(low01, low23);
  const __m256i b26 = _mm256_unpacklo_epi64(high01, high23);
  const __m256i b37 = _mm256_unpackhi_epi64(high01, high23);
  auto* out = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(out + 0, _mm256_permute2x128_si256(b04, b15, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(b26, b37, 0x20));
  _mm256_storeu_si256(out + 2, _mm256_permute2x128_si256(b04, b15, 0x31));
  _mm256_storeu_si256(out + 3, _mm256_permute2x128_si256(b26, b37, 0x31));
}

#endif

}  // namespace dtrain::kernels
