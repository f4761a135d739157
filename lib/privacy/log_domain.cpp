#include "privacy/log_domain.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dtrain::privacy {

double log_add(double a, double b) {
  const auto [low, high] = std::minmax(a, b);
  return low == kLogZero ? high : high + std::log1p(std::exp(low - high));
}

double log_subtract(double a, double b) {
  if (b == kLogZero) return a;
  if (a == b) return kLogZero;
  return a < b ? std::numeric_limits<double>::quiet_NaN() : a + std::log(-std::expm1(b - a));
}

double log_erfc(double x) {
  constexpr double kAsymptotic = 20;  // erfc(20) is 5e-176; the first term left out is below 1e-9 of it
  if (x < kAsymptotic) return std::log(std::erfc(x));
  const double square = x * x;
  const double series = -1 / (2 * square) + 3 / (4 * square * square) - 15 / (8 * square * square * square);
  return -square - std::log(x * std::sqrt(std::numbers::pi)) + std::log1p(series);
}

double normal_above(double z) { return 0.5 * std::erfc(z * std::numbers::sqrt2 / 2); }
double normal_below(double z) { return normal_above(-z); }

}  // namespace dtrain::privacy
