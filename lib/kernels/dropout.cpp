#include "kernels/dropout.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/simd.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dtrain::kernels {
namespace {

constexpr std::uint64_t kDrawsPerBlock = 8;  // a block is 128 bits, a draw 16
constexpr std::uint64_t kMaskBlocksAtOnce = 128;
static_assert(std::endian::native == std::endian::little, "draws are read as the halves of words");

template <class T>
struct Rule {
  std::uint16_t threshold;  ///< Draws below are dropped.
  T scale;
};

template <class T>
void apply_plainly(T* out, const T* input, const std::uint16_t* draws, std::size_t n, Rule<T> rule) {
  for (std::size_t i = 0; i < n; ++i) out[i] = draws[i] >= rule.threshold ? input[i] * rule.scale : T{0};
}

#if defined(__x86_64__)

/// All ones where the draw of that lane is kept, for sixteen draws.
__attribute__((target("avx2"))) inline __m256i kept_lanes(const std::uint16_t* draws,
                                                          std::uint16_t threshold) {
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(draws));
  const __m256i limit = _mm256_set1_epi16(static_cast<short>(threshold));
  return _mm256_cmpeq_epi16(_mm256_max_epu16(values, limit), values);  // unsigned values >= limit
}

__attribute__((target("avx2"))) void apply_avx2(float* out, const float* input, const std::uint16_t* draws,
                                                std::size_t n, Rule<float> rule) {
  const __m256 scale = _mm256_set1_ps(rule.scale);
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i kept = kept_lanes(draws + i, rule.threshold);
    const __m256i first = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(kept));
    const __m256i second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(kept, 1));
    const __m256 a = _mm256_mul_ps(_mm256_loadu_ps(input + i), scale);
    const __m256 b = _mm256_mul_ps(_mm256_loadu_ps(input + i + 8), scale);
    _mm256_storeu_ps(out + i, _mm256_and_ps(a, _mm256_castsi256_ps(first)));
    _mm256_storeu_ps(out + i + 8, _mm256_and_ps(b, _mm256_castsi256_ps(second)));
  }
  apply_plainly(out + i, input + i, draws + i, n - i, rule);
}

__attribute__((target("avx2"))) void apply_avx2(double* out, const double* input, const std::uint16_t* draws,
                                                std::size_t n, Rule<double> rule) {
  const __m256d scale = _mm256_set1_pd(rule.scale);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(draws + i));
    const __m128i limit = _mm_set1_epi16(static_cast<short>(rule.threshold));
    const __m256i kept = _mm256_cvtepi16_epi64(_mm_cmpeq_epi16(_mm_max_epu16(values, limit), values));
    const __m256d scaled = _mm256_mul_pd(_mm256_loadu_pd(input + i), scale);
    _mm256_storeu_pd(out + i, _mm256_and_pd(scaled, _mm256_castsi256_pd(kept)));
  }
  apply_plainly(out + i, input + i, draws + i, n - i, rule);
}

#endif

template <class T>
void apply(T* out, const T* input, const std::uint16_t* draws, std::size_t n, Rule<T> rule) {
#if defined(__x86_64__)
  if (has_avx2()) {
    apply_avx2(out, input, draws, n, rule);
    return;
  }
#endif
  apply_plainly(out, input, draws, n, rule);
}

/// One contiguous run of the whole tensor, from element `index` on.
template <class T>
void dropout_run(T* out, const T* input, std::size_t n, std::uint64_t index, const RandomKey& key,
                 Rule<T> rule) {
  std::array<std::uint16_t, kDrawsPerBlock * kMaskBlocksAtOnce> draws;
  std::array<std::uint32_t, 4 * kMaskBlocksAtOnce> words;
  std::size_t done = 0;
  while (done < n) {
    const std::uint64_t first = index + done;
    const auto skip = static_cast<std::size_t>(first % kDrawsPerBlock);
    const std::size_t count = std::min(draws.size() - skip, n - done);
    philox_words(words.data(), (skip + count + kDrawsPerBlock - 1) / kDrawsPerBlock, key,
                 first / kDrawsPerBlock);
    draws = std::bit_cast<decltype(draws)>(words);
    apply(out + done, input + done, draws.data() + skip, count, rule);
    done += count;
  }
}

}  // namespace

template <class T>
void dropout(T* out, const T* input, const LogicalSlice& slice, const RandomKey& key, double probability) {
  const auto [threshold, scale] = dropout_rule(probability);
  const Rule<T> rule{threshold, static_cast<T>(scale)};
  for (std::size_t row = 0; row < slice.rows; ++row) {
    dropout_run(out + row * slice.columns, input + row * slice.columns, slice.columns,
                slice.first_index + row * slice.row_stride, key, rule);
  }
}

template void dropout<float>(float*, const float*, const LogicalSlice&, const RandomKey&, double);
template void dropout<double>(double*, const double*, const LogicalSlice&, const RandomKey&, double);

}  // namespace dtrain::kernels
