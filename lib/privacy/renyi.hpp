#pragma once

#include <vector>

#include "privacy/sampled_gaussian.hpp"

namespace dtrain::privacy {

/// Orders of Renyi divergence at which it is accounted: Opacus's (1.1 to 10.9 by 0.1, 12 to 63), and some
/// above, for small epsilons.
const std::vector<double>& renyi_orders();

/// Renyi differential privacy of all steps of `mechanism`, at the order `alpha` above 1: an upper bound of
/// the divergence between the outputs on two neighbouring datasets, in either direction.
///
/// Poisson: exact. Source: Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled Gaussian
/// Mechanism", 2019 (arXiv:1908.10530), sections 3.2 and 3.3; of the two directions the one computed is the
/// larger (section 3.1).
///
/// once_an_epoch, with T steps in an epoch: the worst pair of an epoch is the mean of N(e_t, s^2 I) over
/// t = 1..T against N(0, s^2 I) (Chua et al., "Balls-and-Bins Sampling for DP-SGD", 2024, arXiv:2412.16802).
/// One direction is the moment of a mean of lognormal variables, exact at whole orders and between them
/// bounded by the line, (alpha - 1) D being convex. For the other, a mean is at least the geometric mean: D
/// <= (alpha + T - 1) / (2 T s^2) (Feldman and Shenfeld, "Privacy amplification by random allocation", 2025,
/// arXiv:2502.08202). Epochs add up.
double renyi_divergence(const SampledGaussian& mechanism, double alpha);

/// The smallest epsilon at `delta`, over renyi_orders(), of all mechanisms in turn; infinity without noise.
/// Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, proposition
/// 12; Balle et al., "Hypothesis Testing Interpretations and Renyi Differential Privacy", 2020, theorem 21.
/// Throws Error (exit code 2) for values that cannot be.
double renyi_epsilon(const Mechanisms& mechanisms, double delta);

}  // namespace dtrain::privacy
