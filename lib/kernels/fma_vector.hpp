#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace dtrain::kernels {

#define DTRAIN_FMA __attribute__((target("avx2,fma"), always_inline)) inline

/// Thirty-two bytes of float or double, for code that runs only where AVX2 and FMA are.
template <class T>
struct FmaVector;

template <>
struct FmaVector<float> {
  using Value = __m256;
  using Mask = __m256i;
  static constexpr std::size_t kWidth = 8;
  DTRAIN_FMA static Value zero() { return _mm256_setzero_ps(); }
  DTRAIN_FMA static Value all(float x) { return _mm256_set1_ps(x); }
  DTRAIN_FMA static Value load(const float* from) { return _mm256_loadu_ps(from); }
  DTRAIN_FMA static Value load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  DTRAIN_FMA static void store(float* to, Value x) { _mm256_storeu_ps(to, x); }
  DTRAIN_FMA static void store(float* to, Value x, Mask mask) { _mm256_maskstore_ps(to, mask, x); }
  DTRAIN_FMA static Value fma(Value a, Value b, Value c) { return _mm256_fmadd_ps(a, b, c); }
  DTRAIN_FMA static Value add(Value a, Value b) { return _mm256_add_ps(a, b); }
  /// The first `count` lanes, count in [0, 8].
  DTRAIN_FMA static Mask first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  /// The sums over the lanes of each of four.
  DTRAIN_FMA static void sum_lanes(std::array<float, 4>& sums, Value a, Value b, Value c, Value d) {
    const Value pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums.data(), _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
};

template <>
struct FmaVector<double> {
  using Value = __m256d;
  using Mask = __m256i;
  static constexpr std::size_t kWidth = 4;
  DTRAIN_FMA static Value zero() { return _mm256_setzero_pd(); }
  DTRAIN_FMA static Value all(double x) { return _mm256_set1_pd(x); }
  DTRAIN_FMA static Value load(const double* from) { return _mm256_loadu_pd(from); }
  DTRAIN_FMA static Value load(const double* from, Mask mask) { return _mm256_maskload_pd(from, mask); }
  DTRAIN_FMA static void store(double* to, Value x) { _mm256_storeu_pd(to, x); }
  DTRAIN_FMA static void store(double* to, Value x, Mask mask) { _mm256_maskstore_pd(to, mask, x); }
  DTRAIN_FMA static Value fma(Value a, Value b, Value c) { return _mm256_fmadd_pd(a, b, c); }
  DTRAIN_FMA static Value add(Value a, Value b) { return _mm256_add_pd(a, b); }
  /// The first `count` lanes, count in [0, 4].
  DTRAIN_FMA static Mask first(std::size_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<std::int64_t>(count)),
                              _mm256_setr_epi64x(0, 1, 2, 3));
  }
  /// The sums over the lanes of each of four.
  DTRAIN_FMA static void sum_lanes(std::array<double, 4>& sums, Value a, Value b, Value c, Value d) {
    const Value ab = _mm256_hadd_pd(a, b);
    const Value cd = _mm256_hadd_pd(c, d);
    _mm256_storeu_pd(sums.data(), _mm256_add_pd(_mm256_permute2f128_pd(ab, cd, 0x20),
                                                _mm256_permute2f128_pd(ab, cd, 0x31)));
  }
};

}  // namespace dtrain::kernels
#endif
