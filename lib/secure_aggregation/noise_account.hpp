#pragma once

#include "secure_aggregation/settings.hpp"

namespace dtrain::secure_aggregation {

/// The rho of zero-concentrated differential privacy of one round's sum, for a client whose
/// integers become zeros: the Renyi divergence of order alpha is at most rho * alpha. The noise is that of
/// `settings.minimum_survivors` clients, the fewest, each a discrete Gaussian; their sum is close to one, by
/// a term that vanishes for deviations above some integers. `sensitivity`: the largest norm of one client's
/// integers. Infinity without noise. Source: Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian
/// Mechanism for Federated Learning with Secure Aggregation", ICML 2021, theorem 1.
double concentration_of_sum(const Settings& settings, double sensitivity);

}  // namespace dtrain::secure_aggregation
