#include "privacy/normal_numbers.hpp"

#include <bit>
#include <cmath>
#include <numbers>

namespace dtrain::privacy {
namespace {

constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
constexpr std::uint64_t kOne = std::uint64_t{1023} << 52;  // the bits of 1.0
constexpr double kWholes = 0x1.8p52;  // added and taken away again, it rounds to a whole number

// No branches and no calls, so that the loop below becomes one over vectors.

/// log(u) of u in (0, 1], not denormal.
inline double log_of(double u) {
  const auto bits = std::bit_cast<std::uint64_t>(u);
  const double exponent = std::bit_cast<double>((bits >> 52) | (std::uint64_t{0x433} << 52)) - 0x1p52 - 1023;
  const double mantissa = std::bit_cast<double>((bits & kMantissa) | kOne);
  const bool large = mantissa > std::numbers::sqrt2;
  const double m = large ? 0.5 * mantissa : mantissa;
  const double e = large ? exponent + 1 : exponent;
  const double s = (m - 1) / (m + 1);  // log(m) = 2 artanh(s), |s| below 0.172
  const double s2 = s * s;
  double sum = 1.0 / 21;
  sum = sum * s2 + 1.0 / 19;
  sum = sum * s2 + 1.0 / 17;
  sum = sum * s2 + 1.0 / 15;
  sum = sum * s2 + 1.0 / 13;
  sum = sum * s2 + 1.0 / 11;
  sum = sum * s2 + 1.0 / 9;
  sum = sum * s2 + 1.0 / 7;
  sum = sum * s2 + 1.0 / 5;
  sum = sum * s2 + 1.0 / 3;
  sum = sum * s2 + 1;
  return e * std::numbers::ln2 + 2 * s * sum;
}

/// Of t in [-pi / 4, pi / 4], by Taylor.
inline double sine(double t) {
  const double t2 = t * t;
  double sum = 1.0 / 355687428096000;
  sum = sum * t2 - 1.0 / 1307674368000;
  sum = sum * t2 + 1.0 / 6227020800;
  sum = sum * t2 - 1.0 / 39916800;
  sum = sum * t2 + 1.0 / 362880;
  sum = sum * t2 - 1.0 / 5040;
  sum = sum * t2 + 1.0 / 120;
  sum = sum * t2 - 1.0 / 6;
  return t + t * t2 * sum;
}

inline double cosine(double t) {
  const double t2 = t * t;
  double sum = 1.0 / 20922789888000;
  sum = sum * t2 - 1.0 / 87178291200;
  sum = sum * t2 + 1.0 / 479001600;
  sum = sum * t2 - 1.0 / 3628800;
  sum = sum * t2 + 1.0 / 40320;
  sum = sum * t2 - 1.0 / 720;
  sum = sum * t2 + 1.0 / 24;
  sum = sum * t2 - 1.0 / 2;
  return 1 + t2 * sum;
}

/// 52 bits to [1, 2).
inline double from_one(std::uint64_t word) { return std::bit_cast<double>((word >> 12) | kOne); }

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx512f","avx2","default")))
#endif
void normal_numbers(const std::uint64_t* words, double* values, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const double radius = std::sqrt(-2 * log_of(2 - from_one(words[2 * i])));
    const double turn = from_one(words[2 * i + 1]) - 1;
    const double quarter = (4 * turn + kWholes) - kWholes;  // 0 to 4
    const double t = (turn - 0.25 * quarter) * (2 * std::numbers::pi);
    const double s = sine(t);
    const double c = cosine(t);
    const double half = (0.5 * quarter - 0.25 + kWholes) - kWholes;  // 0 0 1 1 2 of the quarters 0 to 4
    const bool odd = quarter - 2 * half != 0;
    const double across = odd ? s : c;
    const double up = odd ? c : s;
    values[2 * i] = radius * (quarter == 1 || quarter == 2 ? -across : across);
    values[2 * i + 1] = radius * (quarter == 2 || quarter == 3 ? -up : up);
  }
}

}  // namespace dtrain::privacy
