#include "kernels/convolution/max_pool.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dtrain::kernels {
namespace {

/// `columns` windows of two rows, one by one.
template <class T>
void pool_row(T* out, std::uint8_t* which, const T* upper, const T* lower, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) {
    const T a = upper[2 * c];
    const T b = upper[2 * c + 1];
    const T x = lower[2 * c];
    const T y = lower[2 * c + 1];
    // !(value <= best) also holds for a NaN value; a NaN that is the best so far stays.
    const bool right = a == a && !(b <= a);
    const T above = right ? b : a;
    const bool below_right = x == x && !(y <= x);
    const T below = below_right ? y : x;
    const bool down = above == above && !(below <= above);
    out[c] = down ? below : above;
    which[c] = static_cast<std::uint8_t>(down ? 2 + (below_right ? 1 : 0) : (right ? 1 : 0));
  }
}

template <class T>
void unpool_row(T* upper, T* lower, const T* gradient, const std::uint8_t* which, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) {
    upper[2 * c] = which[c] == 0 ? gradient[c] : T{0};
    upper[2 * c + 1] = which[c] == 1 ? gradient[c] : T{0};
    lower[2 * c] = which[c] == 2 ? gradient[c] : T{0};
    lower[2 * c + 1] = which[c] == 3 ? gradient[c] : T{0};
  }
}

#if defined(__x86_64__)

// Eight windows at once without a branch: which element wins is a coin toss, and a mispredicted branch costs
// as much as the eight windows.
constexpr std::size_t kAtOnce = 8;

/// Lanes where `value` beats `best`, by the rule of pool_row.
__attribute__((target("avx2"))) inline __m256 beats(__m256 value, __m256 best) {
  return _mm256_and_ps(_mm256_cmp_ps(best, best, _CMP_ORD_Q), _mm256_cmp_ps(value, best, _CMP_NLE_UQ));
}

__attribute__((target("avx2"))) void pool_eight(float* out, std::uint8_t* which, const float* upper,
                                                const float* lower) {
  const __m256 upper0 = _mm256_loadu_ps(upper);
  const __m256 upper1 = _mm256_loadu_ps(upper + kAtOnce);
  const __m256 lower0 = _mm256_loadu_ps(lower);
  const __m256 lower1 = _mm256_loadu_ps(lower + kAtOnce);
  const __m256 a = _mm256_shuffle_ps(upper0, upper1, 0x88);  // even columns; windows 0 1 4 5 | 2 3 6 7
  const __m256 b = _mm256_shuffle_ps(upper0, upper1, 0xDD);  // odd columns
  const __m256 x = _mm256_shuffle_ps(lower0, lower1, 0x88);
  const __m256 y = _mm256_shuffle_ps(lower0, lower1, 0xDD);
  const __m256 right = beats(b, a);
  const __m256 above = _mm256_blendv_ps(a, b, right);
  const __m256 below_right = beats(y, x);
  const __m256 below = _mm256_blendv_ps(x, y, below_right);
  const __m256 down = beats(below, above);
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i above_place = _mm256_and_si256(_mm256_castps_si256(right), one);
  const __m256i below_place =
      _mm256_add_epi32(_mm256_and_si256(_mm256_castps_si256(below_right), one), _mm256_set1_epi32(2));
  const __m256i place = _mm256_permute4x64_epi64(
      _mm256_blendv_epi8(above_place, below_place, _mm256_castps_si256(down)), 0xD8);  // windows 0 to 7
  const __m256d best = _mm256_castps_pd(_mm256_blendv_ps(above, below, down));
  _mm256_storeu_ps(out, _mm256_castpd_ps(_mm256_permute4x64_pd(best, 0xD8)));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(place), _mm256_extracti128_si256(place, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(which), _mm_packus_epi16(words, words));
}

/// Two vectors as the sixteen elements first[0], second[0], first[1], second[1] ...
__attribute__((target("avx2"))) inline void store_interleaved(float* to, __m256 first, __m256 second) {
  const __m256 low = _mm256_unpacklo_ps(first, second);
  const __m256 high = _mm256_unpackhi_ps(first, second);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
  _mm256_storeu_ps(to + kAtOnce, _mm256_permute2f128_ps(low, high, 0x31));
}

/// `gradient` in the lanes whose place is `wanted`, 0 elsewhere.
__attribute__((target("avx2"))) inline __m256 where_place_is(int wanted, __m256i place, __m256 gradient) {
  return _mm256_and_ps(gradient, _mm256_castsi256_ps(_mm256_cmpeq_epi32(place, _mm256_set1_epi32(wanted))));
}

__attribute__((target("avx2"))) void unpool_eight(float* upper, float* lower, const float* gradient,
                                                  const std::uint8_t* which) {
  const __m256i place = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(which)));
  const __m256 values = _mm256_loadu_ps(gradient);
  store_interleaved(upper, where_place_is(0, place, values), where_place_is(1, place, values));
  store_interleaved(lower, where_place_is(2, place, values), where_place_is(3, place, values));
}

/// Calls `eight(first window)` so that all windows are covered; the last call may overlap the one before.
template <class Eight>
void cover(std::size_t columns, const Eight& eight) {
  for (std::size_t c = 0; c + kAtOnce <= columns; c += kAtOnce) eight(c);
  if (columns % kAtOnce != 0) eight(columns - kAtOnce);
}

void pool_row_avx2(float* out, std::uint8_t* which, const float* upper, const float* lower,
                   std::size_t columns) {
  if (columns >= kAtOnce) {
    cover(columns, [=](std::size_t c) { pool_eight(out + c, which + c, upper + 2 * c, lower + 2 * c); });
    return;
  }
  std::array<float, 2 * kAtOnce> padded_upper{};
  std::array<float, 2 * kAtOnce> padded_lower{};
  std::array<float, kAtOnce> best;
  std::array<std::uint8_t, kAtOnce> place;
  std::copy_n(upper, 2 * columns, padded_upper.begin());
  std::copy_n(lower, 2 * columns, padded_lower.begin());
  pool_eight(best.data(), place.data(), padded_upper.data(), padded_lower.data());
  std::copy_n(best.begin(), columns, out);
  std::copy_n(place.begin(), columns, which);
}

void unpool_row_avx2(float* upper, float* lower, const float* gradient, const std::uint8_t* which,
                     std::size_t columns) {
  if (columns >= kAtOnce) {
    cover(columns,
          [=](std::size_t c) { unpool_eight(upper + 2 * c, lower + 2 * c, gradient + c, which + c); });
    return;
  }
  std::array<float, kAtOnce> padded{};
  std::array<std::uint8_t, kAtOnce> place{};
  std::array<float, 2 * kAtOnce> upper_row;
  std::array<float, 2 * kAtOnce> lower_row;
  std::copy_n(gradient, columns, padded.begin());
  std::copy_n(which, columns, place.begin());
  unpool_eight(upper_row.data(), lower_row.data(), padded.data(), place.data());
  std::copy_n(upper_row.begin(), 2 * columns, upper);
  std::copy_n(lower_row.begin(), 2 * columns, lower);
}

// Chosen by overload for float where there is AVX2.
void pool_row_best(float* out, std::uint8_t* which, const float* upper, const float* lower,
                   std::size_t columns) {
  (has_avx2() ? pool_row_avx2 : pool_row<float>)(out, which, upper, lower, columns);
}
void unpool_row_best(float* upper, float* lower, const float* gradient, const std::uint8_t* which,
                     std::size_t columns) {
  (has_avx2() ? unpool_row_avx2 : unpool_row<float>)(upper, lower, gradient, which, columns);
}

#endif

template <class T>
void pool_row_best(T* out, std::uint8_t* which, const T* upper, const T* lower, std::size_t columns) {
  pool_row(out, which, upper, lower, columns);
}
template <class T>
void unpool_row_best(T* upper, T* lower, const T* gradient, const std::uint8_t* which, std::size_t columns) {
  unpool_row(upper, lower, gradient, which, columns);
}

/// The largest of four and its place, for a vector of what is innermost from `n` on, by the rule of pool_row.
template <class S>
DTRAIN_VECTOR_BODY inline void best_of_four(S* out, std::uint8_t* which, const S* const (&windows)[4],
                                            std::size_t n) {
  using T = Computed<S>;
  using Vector = typename Lanes<T>::Vector;
  using Mask = decltype(Vector{} < Vector{});
  typedef std::uint8_t Bytes __attribute__((vector_size(Lanes<T>::kWidth)));
  Vector best;
  Vector value;
  load(best, windows[0] + n);
  Mask place{};
  for (std::size_t i = 1; i < 4; ++i) {
    load(value, windows[i] + n);
    const Mask wins = (best == best) & ~(value <= best);
    best = wins ? value : best;
    place = wins ? Mask{} + static_cast<std::remove_cvref_t<decltype(place[0])>>(i) : place;
  }
  store(out, best);
  const Bytes bytes = __builtin_convertvector(place, Bytes);
  std::memcpy(which, &bytes, sizeof(bytes));
}

/// Numbers that are moved only, which compilers do by vectors of plain numbers.
template <class T>
T* moved_as(T* at) {
  return at;
}
std::uint16_t* moved_as(Bfloat16* at) { return &at->bits; }
const std::uint16_t* moved_as(const Bfloat16* at) { return &at->bits; }

/// A vector of each of a window's four pixels: the gradient where the maximum was, else 0.
template <class T>
DTRAIN_VECTOR_BODY inline void unpool_lanes(T* const (&pixels)[4], const T* gradient,
                                            const std::uint8_t* which) {
  using Vector = typename Lanes<T>::Vector;
  using Mask = decltype(Vector{} == Vector{});
  typedef std::uint8_t Bytes __attribute__((vector_size(Lanes<T>::kWidth)));
  Vector value;
  load(value, gradient);
  Bytes bytes;
  std::memcpy(&bytes, which, sizeof(bytes));
  const auto place = __builtin_convertvector(bytes, Mask);
  for (std::size_t i = 0; i < 4; ++i) {
    const Mask here = place == static_cast<std::remove_cvref_t<decltype(place[0])>>(i);
    store(pixels[i], here ? value : Vector{});
  }
}

template <class T>
void unpool_inner(T* input_gradient, const T* gradient, const std::uint8_t* which, const PoolSize& size,
                  std::size_t inner) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  if (size.height % 2 == 1 || size.width % 2 == 1) {
    std::fill(input_gradient, input_gradient + size.planes * size.height * size.width * inner, T{0});
  }
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t window = 0; window < size.planes * rows * columns; ++window) {
      const std::size_t row = window / columns;
      T* upper = input_gradient +
                 ((row / rows * size.height + row % rows * 2) * size.width + window % columns * 2) * inner;
      T* lower = upper + size.width * inner;
      const T* of = gradient + window * inner;
      const std::uint8_t* place = which + window * inner;
      T* const pixels[4] = {upper, upper + inner, lower, lower + inner};
      std::size_t n = 0;
      for (; n + Lanes<T>::kWidth <= inner; n += Lanes<T>::kWidth) {
        unpool_lanes({pixels[0] + n, pixels[1] + n, pixels[2] + n, pixels[3] + n}, of + n, place + n);
      }
      for (; n < inner; ++n) {
        for (std::size_t i = 0; i < 4; ++i) pixels[i][n] = place[n] == i ? of[n] : T{0};
      }
    }
  });
}

}  // namespace

template <class T>
void max_pool_2x2(T* out, std::uint8_t* which, const T* input, const PoolSize& size) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  for (std::size_t row = 0; row < size.planes * rows; ++row) {
    const T* upper = input + (row / rows * size.height + row % rows * 2) * size.width;
    pool_row_best(out + row * columns, which + row * columns, upper, upper + size.width, columns);
  }
}

template <class T>
void max_pool_2x2_backward(T* input_gradient, const T* gradient, const std::uint8_t* which,
                           const PoolSize& size) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  if (size.height % 2 == 1 || size.width % 2 == 1) {
    std::fill(input_gradient, input_gradient + size.planes * size.height * size.width, T{0});
  }
  for (std::size_t row = 0; row < size.planes * rows; ++row) {
    T* upper = input_gradient + (row / rows * size.height + row % rows * 2) * size.width;
    unpool_row_best(upper, upper + size.width, gradient + row * columns, which + row * columns, columns);
  }
}

template <class S>
void max_pool_2x2_inner(S* out, std::uint8_t* which, const S* input, const PoolSize& size,
                        std::size_t inner) {
  const std::size_t rows = size.height / 2;
  const std::size_t columns = size.width / 2;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t window = 0; window < size.planes * rows * columns; ++window) {
      const std::size_t row = window / columns;
      const S* upper =
          input + ((row / rows * size.height + row % rows * 2) * size.width + window % columns * 2) * inner;
      const S* lower = upper + size.width * inner;
      S* best_of = out + window * inner;
      std::uint8_t* place_of = which + window * inner;
      const S* const windows[] = {upper, upper + inner, lower, lower + inner};
      constexpr std::size_t kWidth = Lanes<Computed<S>>::kWidth;
      std::size_t n = 0;
      for (; n + kWidth <= inner; n += kWidth) best_of_four<S>(best_of + n, place_of + n, windows, n);
      if (n < inner) {
        S padded[4][kWidth] = {};
        S best[kWidth];
        std::uint8_t place[kWidth];
        for (std::size_t i = 0; i < 4; ++i) std::copy_n(windows[i] + n, inner - n, padded[i]);
        const S* const tails[] = {padded[0], padded[1], padded[2], padded[3]};
        best_of_four<S>(best, place, tails, 0);
        std::copy_n(best, inner - n, best_of + n);
        std::copy_n(place, inner - n, place_of + n);
      }
    }
  });
}

template <class S>
void max_pool_2x2_inner_backward(S* input_gradient, const S* gradient, const std::uint8_t* which,
                                 const PoolSize& size, std::size_t inner) {
  unpool_inner(moved_as(input_gradient), moved_as(gradient), which, size, inner);
}

template void max_pool_2x2<float>(float*, std::uint8_t*, const float*, const PoolSize&);
template void max_pool_2x2<double>(double*, std::uint8_t*, const double*, const PoolSize&);
template void max_pool_2x2_backward<float>(float*, const float*, const std::uint8_t*, const PoolSize&);
template void max_pool_2x2_backward<double>(double*, const double*, const std::uint8_t*, const PoolSize&);

#define DTRAIN_DEFINE_INNER_POOL(S)                                                                \
  template void max_pool_2x2_inner<S>(S*, std::uint8_t*, const S*, const PoolSize&, std::size_t);  \
  template void max_pool_2x2_inner_backward<S>(S*, const S*, const std::uint8_t*, const PoolSize&, \
                                               std::size_t);
DTRAIN_DEFINE_INNER_POOL(float)
DTRAIN_DEFINE_INNER_POOL(double)
DTRAIN_DEFINE_INNER_POOL(Bfloat16)
#undef DTRAIN_DEFINE_INNER_POOL

}  // namespace dtrain::kernels
