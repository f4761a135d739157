#include "privacy/renyi.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "privacy/log_domain.hpp"

namespace dtrain::privacy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double log_factorial(double n) { return std::lgamma(n + 1); }

/// log of the moment A(alpha) of equation 4 of Mironov et al., of a whole order.
double log_moment_whole(double rate, double noise, double alpha) {
  double sum = kLogZero;
  for (double i = 0; i <= alpha; ++i) {
    const double ways = log_factorial(alpha) - log_factorial(i) - log_factorial(alpha - i);
    sum = log_add(
        sum, ways + i * std::log(rate) + (alpha - i) * std::log1p(-rate) + i * (i - 1) / (2 * noise * noise));
  }
  return sum;
}

/// The same between whole orders: two series, one for the left of z0 and one for its right.
double log_moment_between(double rate, double noise, double alpha) {
  constexpr double kSmallest = -30;  // log of a term that ends the series, whose terms fall fast by then
  const double variance = noise * noise;
  const double z0 = variance * std::log(1 / rate - 1) + 0.5;
  double left = kLogZero;
  double right = kLogZero;
  double ways = 0;  // log of |alpha over i|
  bool adds = true;
  for (double i = 0;; ++i) {
    const double j = alpha - i;
    const double of_left = ways + i * std::log(rate) + j * std::log1p(-rate) + (i * i - i) / (2 * variance) +
                           std::log(0.5) + log_erfc((i - z0) / (std::sqrt(2.0) * noise));
    const double of_right = ways + j * std::log(rate) + i * std::log1p(-rate) + (j * j - j) / (2 * variance) +
                            std::log(0.5) + log_erfc((z0 - j) / (std::sqrt(2.0) * noise));
    left = adds ? log_add(left, of_left) : log_subtract(left, of_left);
    right = adds ? log_add(right, of_right) : log_subtract(right, of_right);
    if (std::isnan(left) || std::isnan(right)) return kInfinity;  // this order serves for nothing
    if (i > alpha && std::max(of_left, of_right) < kSmallest) return log_add(left, right);
    ways += std::log(std::abs(j)) - std::log(i + 1);
    if (j < 0) adds = !adds;
  }
}

double divergence_of_poisson(double rate, double noise, double alpha) {
  if (rate == 1) return alpha / (2 * noise * noise);
  const double log_moment = alpha == std::floor(alpha) ? log_moment_whole(rate, noise, alpha)
                                                       : log_moment_between(rate, noise, alpha);
  return log_moment / (alpha - 1);
}

/// Polynomials by the logarithms of their coefficients, up to some degree.
using LogPolynomial = std::vector<double>;

LogPolynomial product(const LogPolynomial& a, const LogPolynomial& b) {
  LogPolynomial all(a.size(), kLogZero);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; i + j < a.size(); ++j) all[i + j] = log_add(all[i + j], a[i] + b[j]);
  }
  return all;
}

/// (alpha - 1) D of the mean of N(e_t, s^2 I), t = 1..T, against N(0, s^2 I), for alpha = 0..most: log of
/// alpha! / T^alpha times the coefficient of x^alpha in (sum over m of x^m e^(m (m-1) / (2 s^2)) / m!)^T.
std::vector<double> log_moments_of_mean(double noise, std::int64_t steps, std::size_t most) {
  LogPolynomial power(most + 1, kLogZero);
  for (std::size_t m = 0; m <= most; ++m) {
    const auto count = static_cast<double>(m);
    power[m] = count * (count - 1) / (2 * noise * noise) - log_factorial(count);
  }
  LogPolynomial all(most + 1, kLogZero);
  all[0] = 0;
  for (auto left = steps; left > 0; left /= 2) {
    if (left % 2 == 1) all = product(all, power);
    if (left > 1) power = product(power, power);
  }
  for (std::size_t alpha = 0; alpha <= most; ++alpha) {
    const auto order = static_cast<double>(alpha);
    all[alpha] =
        std::max(0.0, all[alpha] + log_factorial(order) - order * std::log(static_cast<double>(steps)));
  }
  return all;
}

/// Of an epoch. `moments`: log_moments_of_mean() up to the order or above; beyond them an epoch is a step in
/// which every record takes part, which is a bound of any order.
double divergence_of_epoch(const SampledGaussian& mechanism, const std::vector<double>& moments,
                           double alpha) {
  const double variance = mechanism.noise_multiplier * mechanism.noise_multiplier;
  const auto steps = static_cast<double>(mechanism.steps_per_epoch());
  const double all_take_part = alpha / (2 * variance);
  const auto below = static_cast<std::size_t>(std::floor(alpha));
  if (below + 1 >= moments.size()) return all_take_part;
  const double part = alpha - std::floor(alpha);
  const double removed = ((1 - part) * moments[below] + part * moments[below + 1]) / (alpha - 1);
  const double added = (alpha + steps - 1) / (2 * steps * variance);
  return std::min(all_take_part, std::max(removed, added));
}

constexpr std::size_t kMostMoments = 129;

/// Of all steps, at each of `orders`.
std::vector<double> divergences(const SampledGaussian& mechanism, const std::vector<double>& orders) {
  std::vector<double> all(orders.size(), 0.0);
  if (mechanism.steps == 0) return all;
  if (mechanism.noise_multiplier == 0) return std::vector<double>(orders.size(), kInfinity);
  const bool poisson = mechanism.sampling == Sampling::poisson;
  const auto moments =
      poisson ? std::vector<double>()
              : log_moments_of_mean(mechanism.noise_multiplier, mechanism.steps_per_epoch(), kMostMoments);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    all[i] = poisson ? static_cast<double>(mechanism.steps) *
                           divergence_of_poisson(mechanism.rate, mechanism.noise_multiplier, orders[i])
                     : static_cast<double>(mechanism.epochs()) *
                           divergence_of_epoch(mechanism, moments, orders[i]);
  }
  return all;
}

}  // namespace

const std::vector<double>& renyi_orders() {
  static const std::vector<double> kOrders = [] {
    std::vector<double> all;
    for (int tenths = 1; tenths < 100; ++tenths) all.push_back(1 + tenths / 10.0);
    for (int whole = 12; whole < 64; ++whole) all.push_back(whole);
    for (const double whole : {64, 80, 96, 128, 192, 256, 512, 1024}) all.push_back(whole);
    return all;
  }();
  return kOrders;
}

double renyi_divergence(const SampledGaussian& mechanism, double alpha) {
  mechanism.validate();
  return divergences(mechanism, {alpha}).front();
}

double renyi_epsilon(const Mechanisms& mechanisms, double delta) {
  require_delta(delta);
  const auto& orders = renyi_orders();
  std::vector<double> sums(orders.size(), 0.0);
  bool nothing = true;
  for (const auto& mechanism : mechanisms) {
    mechanism.validate();
    nothing = nothing && mechanism.steps == 0;
    const auto more = divergences(mechanism, orders);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  }
  if (nothing) return 0;
  double best = kInfinity;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const double alpha = orders[i];
    const double epsilon =
        sums[i] - (std::log(delta) + std::log(alpha)) / (alpha - 1) + std::log1p(-1 / alpha);
    if (!std::isnan(epsilon)) best = std::min(best, epsilon);
  }
  return std::max(0.0, best);
}

}  // namespace dtrain::privacy
