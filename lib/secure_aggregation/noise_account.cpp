#include "secure_aggregation/noise_account.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace dtrain::secure_aggregation {

double concentration_of_sum(const Settings& settings, double sensitivity) {
  if (settings.noise_deviation <= 0) return std::numeric_limits<double>::infinity();
  const auto variance = static_cast<double>(settings.noise_variance_of_a_client());
  const int clients = settings.minimum_survivors;
  const auto length = static_cast<double>(settings.length);
  double apart = 0;  // how far the sum's distribution may be from a discrete Gaussian
  for (int k = 1; k < clients; ++k)
    apart += 10 * std::exp(-2 * std::numbers::pi * std::numbers::pi * variance * k / (k + 1.0));
  const double of_sum = std::sqrt(clients * variance);
  const double epsilon = std::min(std::sqrt(std::pow(sensitivity / of_sum, 2) + apart * length / 2),
                                  sensitivity / of_sum + apart * std::sqrt(length));
  return epsilon * epsilon / 2;
}

}  // namespace dtrain::secure_aggregation
