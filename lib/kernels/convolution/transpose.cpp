#include "kernels/convolution/transpose.hpp"

#include <algorithm>

#include "kernels/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dtrain::kernels {
namespace {

constexpr std::size_t kTransposed = 8;  // rows and columns at once: a register of float

template <class T>
void transpose_part(T* out, const T* in, std::size_t rows, std::size_t columns, std::size_t in_row,
                    std::size_t out_row) {
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = 0; r < rows; ++r) out[c * out_row + r] = in[r * in_row + c];
  }
}

template <class T>
void transpose_tile(T* out, const T* in, std::size_t in_row, std::size_t out_row) {
  transpose_part(out, in, kTransposed, kTransposed, in_row, out_row);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void transpose_tile_avx2(float* out, const float* in, std::size_t in_row,
                                                         std::size_t out_row) {
  __m256 pairs[kTransposed];
  __m256 quads[kTransposed];
  for (std::size_t r = 0; r < kTransposed; r += 2) {
    const __m256 a = _mm256_loadu_ps(in + r * in_row);
    const __m256 b = _mm256_loadu_ps(in + (r + 1) * in_row);
    pairs[r] = _mm256_unpacklo_ps(a, b);      // columns 0 1 | 4 5 of two rows
    pairs[r + 1] = _mm256_unpackhi_ps(a, b);  // columns 2 3 | 6 7
  }
  for (std::size_t half = 0; half < kTransposed; half += 4) {
    for (std::size_t i = 0; i < 2; ++i) {
      quads[half + 2 * i] = _mm256_shuffle_ps(pairs[half + i], pairs[half + 2 + i], 0x44);
      quads[half + 2 * i + 1] = _mm256_shuffle_ps(pairs[half + i], pairs[half + 2 + i], 0xEE);
    }
  }
  for (std::size_t c = 0; c < 4; ++c) {
    _mm256_storeu_ps(out + c * out_row, _mm256_permute2f128_ps(quads[c], quads[c + 4], 0x20));
    _mm256_storeu_ps(out + (c + 4) * out_row, _mm256_permute2f128_ps(quads[c], quads[c + 4], 0x31));
  }
}
// Chosen by overload for float where there is AVX2.
void transpose_tile(float* out, const float* in, std::size_t in_row, std::size_t out_row) {
  (has_avx2() ? transpose_tile_avx2 : transpose_tile<float>)(out, in, in_row, out_row);
}
#endif

}  // namespace

template <class T>
void transpose(T* out, const T* in, std::size_t rows, std::size_t columns) {
  const std::size_t whole_rows = rows / kTransposed * kTransposed;
  const std::size_t whole_columns = columns / kTransposed * kTransposed;
  for (std::size_t c = 0; c < whole_columns; c += kTransposed) {
    for (std::size_t r = 0; r < whole_rows; r += kTransposed) {
      transpose_tile(out + c * rows + r, in + r * columns + c, columns, rows);
    }
  }
  transpose_part(out + whole_rows, in + whole_rows * columns, rows - whole_rows, whole_columns, columns,
                 rows);
  transpose_part(out + whole_columns * rows, in + whole_columns, rows, columns - whole_columns, columns,
                 rows);
}

template void transpose<float>(float*, const float*, std::size_t, std::size_t);
template void transpose<double>(double*, const double*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
