#include "kernels/compression/block_codes.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::int32_t kWithoutSign = 0x7FFFFFFF;
constexpr int kTenths = 7;
constexpr std::array<double, kTenths> kTenth = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0};

/// The levels of one sign, from 0 up to 1, and how to find the nearest.
class Ladder {
 public:
  /// `first`: levels of the lowest tenth; each further one has twice as many.
  explicit Ladder(int first) {
    values_[0] = 0;
    for (int tenth = 0; tenth < kTenths; ++tenth) {
      const int count = first << tenth;
      const auto edge = [count](int i) { return 0.1 + 0.9 * i / count; };
      for (int i = 0; i < count; ++i)
        values_[last_++ + 1] =
            static_cast<float>(kTenth[static_cast<std::size_t>(tenth)] * ((edge(i) + edge(i + 1)) / 2));
    }
    values_[++last_] = 1;
    for (std::size_t i = 0; i < last_; ++i) middles_[i] = (values_[i] + values_[i + 1]) / 2;
    middles_[last_] = std::numeric_limits<float>::infinity();
    for (std::int32_t bin = 0; bin < kBins; ++bin) {
      const auto begin = bin == 0 ? 0.0F : std::bit_cast<float>((bin + kFirstBin) << kShift);
      const auto place = std::lower_bound(middles_.begin(), middles_.begin() + last_, begin);
      levels_[static_cast<std::size_t>(bin)] = static_cast<std::int32_t>(place - middles_.begin());
    }
  }

  std::size_t last() const { return last_; }  ///< The level of 1.
  float value(std::size_t level) const { return values_[level]; }

  /// Levels of sizes up to 1. A bin begins at a level, and has at most two more.
  void nearest(std::int32_t* out, const float* shares, std::size_t n) const {
    std::size_t done = 0;
#if defined(__x86_64__)
    if (has_avx2()) done = nearest_by_eight(out, shares, n);
#endif
    for (std::size_t i = done; i < n; ++i) {
      const auto bits = std::bit_cast<std::int32_t>(shares[i]) & kWithoutSign;
      const auto size = std::bit_cast<float>(bits);
      const auto bin = std::min(std::max(bits >> kShift, kFirstBin) - kFirstBin, kBins - 1);
      std::int32_t level = levels_[static_cast<std::size_t>(bin)];
      level += static_cast<std::int32_t>(size > middles_[static_cast<std::size_t>(level)]);
      level += static_cast<std::int32_t>(size > middles_[static_cast<std::size_t>(level)]);
      out[i] = level;
    }
  }

 private:
#if defined(__x86_64__)
  /// The same, eight at a time. Returns how many are done.
  __attribute__((target("avx2"))) std::size_t nearest_by_eight(std::int32_t* out, const float* shares,
                                                               std::size_t n) const {
    const __m256i without_sign = _mm256_set1_epi32(kWithoutSign);
    const __m256i first = _mm256_set1_epi32(kFirstBin);
    const __m256i last = _mm256_set1_epi32(kBins - 1);
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const __m256i bits = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(shares + i)), without_sign);
      const __m256 size = _mm256_castsi256_ps(bits);
      const __m256i place = _mm256_sub_epi32(_mm256_max_epi32(_mm256_srai_epi32(bits, kShift), first), first);
      __m256i level = _mm256_i32gather_epi32(levels_.data(), _mm256_min_epi32(place, last), 4);
      for (int step = 0; step < 2; ++step) {
        const __m256 middle = _mm256_i32gather_ps(middles_.data(), level, 4);
        const __m256i is_above = _mm256_castps_si256(_mm256_cmp_ps(size, middle, _CMP_GT_OQ));
        level = _mm256_sub_epi32(level, is_above);  // which is -1 where it is true
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), level);
    }
    return i;
  }
#endif

  static constexpr std::int32_t kShift = 17;                         // keeps 6 bits of the fraction
  static constexpr std::int32_t kFirstBin = (127 - 24) << 6;         // 2^-24: below it all is nearest to 0
  static constexpr std::int32_t kBins = (127 << 6) - kFirstBin + 1;  // the last one has 1 alone
  std::array<float, 256> values_{};
  std::array<float, 256> middles_{};  // between a level and the next one
  std::array<std::int32_t, kBins> levels_{};
  std::size_t last_ = 0;
};

constexpr std::int32_t kZeroWithSign = 127;  // the code of 0: levels of the other sign come before it

const Ladder& ladder(Levels levels) {
  static const Ladder kWithSign(1);
  static const Ladder kPositive(2);
  return levels == Levels::with_sign ? kWithSign : kPositive;
}

std::array<float, 256> values_of(Levels levels) {
  const Ladder& of = ladder(levels);
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    const auto level = static_cast<std::int32_t>(code) - (levels == Levels::positive ? 0 : kZeroWithSign);
    const float size = of.value(static_cast<std::size_t>(std::abs(level)));
    values[code] = level < 0 ? -size : size;
  }
  return values;
}

/// The first of the largest in size. Sizes are in the order of their bits.
float largest_of(const float* values, std::size_t n) {
  std::int32_t largest = 0;
  with_avx2([&]() DTRAIN_VECTOR_BODY {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < n; ++i)
      most = std::max(most, std::bit_cast<std::int32_t>(values[i]) & kWithoutSign);
    largest = most;
  });
  for (std::size_t i = 0; i < n; ++i) {
    if ((std::bit_cast<std::int32_t>(values[i]) & kWithoutSign) == largest) return values[i];
  }
  return 0;
}

}  // namespace

const std::array<float, 256>& code_values(Levels levels) {
  static const std::array<float, 256> kWithSign = values_of(Levels::with_sign);
  static const std::array<float, 256> kPositive = values_of(Levels::positive);
  return levels == Levels::with_sign ? kWithSign : kPositive;
}

float encode_block(std::uint8_t* codes, const float* values, std::size_t n, Levels levels) {
  const float scale = largest_of(values, n);
  if (scale == 0) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(levels == Levels::positive ? 0 : kZeroWithSign));
    return scale;
  }
  std::array<float, kCodeBlock> of_scale;
  std::array<std::int32_t, kCodeBlock> levels_of;
  auto* const shares = of_scale.data();
  auto* const nearest = levels_of.data();
  with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) shares[i] = values[i] / scale;
  });
  const Ladder& of = ladder(levels);
  of.nearest(nearest, shares, n);
  if (levels == Levels::positive) {
    with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i)
        codes[i] = static_cast<std::uint8_t>(std::max(nearest[i], static_cast<std::int32_t>(values[i] != 0)));
    });
    return scale;
  }
  const auto most = static_cast<std::int32_t>(of.last());  // which only the scale's own sign has
  with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t negative = std::bit_cast<std::int32_t>(shares[i]) >> 31;  // -1, or 0
      const std::int32_t level = std::min(nearest[i], most + negative);
      codes[i] = static_cast<std::uint8_t>(kZeroWithSign + (level ^ negative) - negative);
    }
  });
  return scale;
}

void decode_block(float* values, const std::uint8_t* codes, float scale, std::size_t n, Levels levels) {
  const auto* const of = code_values(levels).data();
  for (std::size_t i = 0; i < n; ++i) values[i] = of[codes[i]] * scale;
}

}  // namespace dtrain::kernels
