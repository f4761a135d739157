#include "privacy/fourier.hpp"

#include <bit>
#include <limits>
#include <numbers>
#include <utility>

namespace dtrain::privacy {
namespace {

void reverse_bits(std::vector<std::complex<double>>& values) {
  for (std::size_t i = 1, j = 0; i < values.size(); ++i) {
    std::size_t bit = values.size() >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(values[i], values[j]);
  }
}

/// Without the checks for NaN of operator*.
std::complex<double> times(std::complex<double> a, std::complex<double> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace

void fourier(std::vector<std::complex<double>>& values, Transform transform) {
  const auto n = values.size();
  reverse_bits(values);
  std::vector<std::complex<double>> factors(n / 2);
  const double turn = (transform == Transform::forth ? -2 : 2) * std::numbers::pi / static_cast<double>(n);
  for (std::size_t k = 0; k < factors.size(); ++k)
    factors[k] = std::polar(1.0, turn * static_cast<double>(k));
  for (std::size_t length = 2; length <= n; length *= 2) {
    const auto half = length / 2;
    std::vector<std::complex<double>> level(half);  // side by side
    for (std::size_t k = 0; k < half; ++k) level[k] = factors[k * (n / length)];
    for (std::size_t begin = 0; begin < n; begin += length) {
      for (std::size_t k = 0; k < half; ++k) {
        auto& low = values[begin + k];
        auto& high = values[begin + half + k];
        const auto turned = times(high, level[k]);
        high = low - turned;
        low += turned;
      }
    }
  }
  if (transform == Transform::back) {
    for (auto& value : values) value /= static_cast<double>(n);
  }
}

double fourier_error(std::size_t n) {
  constexpr double kRoundings = 8;  // of a product, a sum and a factor, in units of 2^-53
  return kRoundings * static_cast<double>(std::bit_width(n)) * std::numeric_limits<double>::epsilon() / 2;
}

}  // namespace dtrain::privacy
