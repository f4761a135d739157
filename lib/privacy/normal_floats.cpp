#include "privacy/normal_floats.hpp"

#include <bit>
#include <cmath>
#include <numbers>

namespace dtrain::privacy {
namespace {

constexpr std::uint64_t kBitsOfOne = std::uint64_t{1023} << 52;     // the bits of 1.0
constexpr std::uint64_t kRootOfHalf = 0x3FE6A09E667F3BCDU;          // those of sqrt(1 / 2)
constexpr std::uint64_t kWholeNumber = std::uint64_t{0x433} << 52;  // those of 2^52, whose last bit is 1

// No branches and no calls, so that the loop below becomes one over vectors.

/// log(u) of u in (0, 1], not denormal: u = 2^e m with m in [sqrt(1 / 2), sqrt(2)). m - 1 is exact, in
/// double, so that it is as precise near 1 as elsewhere.
inline float float_log(double u) {
  const auto bits = std::bit_cast<std::uint64_t>(u);
  const auto exponent = (bits - kRootOfHalf + kBitsOfOne) >> 52;  // 1023 + e
  const auto e = static_cast<float>(std::bit_cast<double>(exponent | kWholeNumber) - (0x1p52 + 1023));
  const auto m1 = static_cast<float>(std::bit_cast<double>(bits - (exponent << 52) + kBitsOfOne) - 1);
  const float s = m1 / (2 + m1);  // log(m) = 2 artanh(s), |s| below 0.172
  const float s2 = s * s;
  float sum = 1.0F / 9;
  sum = sum * s2 + 1.0F / 7;
  sum = sum * s2 + 1.0F / 5;
  sum = sum * s2 + 1.0F / 3;
  return e * std::numbers::ln2_v<float> + (2 * s + 2 * s * s2 * sum);
}

/// Of t in [-pi / 4, pi / 4], by Taylor.
inline float sine(float t) {
  const float t2 = t * t;
  float sum = 1.0F / 362880;
  sum = sum * t2 - 1.0F / 5040;
  sum = sum * t2 + 1.0F / 120;
  sum = sum * t2 - 1.0F / 6;
  return t + t * t2 * sum;
}

inline float cosine(float t) {
  const float t2 = t * t;
  float sum = 1.0F / 40320;
  sum = sum * t2 - 1.0F / 720;
  sum = sum * t2 + 1.0F / 24;
  sum = sum * t2 - 1.0F / 2;
  return 1 + t2 * sum;
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("arch=x86-64-v4","arch=x86-64-v3","default")))
#endif
void add_normal_floats(const std::uint64_t* lengths, const std::uint32_t* turns, float deviation,
                       float* values, std::size_t pairs) {
  float* across = values;
  float* up = values + pairs;
#pragma GCC ivdep
  for (std::size_t i = 0; i < pairs; ++i) {
    const double u = 2 - std::bit_cast<double>((lengths[i] >> 12) | kBitsOfOne);  // in (0, 1]
    const float length = deviation * std::sqrt(-2 * float_log(u));
    // The nearest quarter of a turn, and the rest, of which an eighth is 2^29.
    const std::uint32_t moved = turns[i] + (std::uint32_t{1} << 29);
    const std::uint32_t quarter = moved >> 30;
    const auto rest = static_cast<std::int32_t>(moved & 0x3FFFFFFFU) - (1 << 29);
    const float t = static_cast<float>(rest) * (std::numbers::pi_v<float> * 0x1p-31F);
    const float s = sine(t);
    const float c = cosine(t);
    const bool odd = (quarter & 1) != 0;
    const float x = odd ? s : c;
    const float y = odd ? c : s;
    across[i] += length * (((quarter + 1) & 2) != 0 ? -x : x);
    up[i] += length * ((quarter & 2) != 0 ? -y : y);
  }
}

}  // namespace dtrain::privacy
