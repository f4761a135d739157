#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "privacy/sampled_gaussian.hpp"

namespace dtrain::privacy {

/// Which of two neighbouring datasets is seen: the larger one (its record may be removed), or the smaller
/// one.
enum class Direction { remove, add };

/// What an approximation errs to: epsilon is at least, or at most, as large as it really is.
enum class Bound { upper, lower };

/// Distribution of the privacy loss log(P / Q) under P, on a grid: `mass[i]` at (lowest + i) x grid.
struct LossDistribution {
  double grid = 1e-4;
  std::int64_t lowest = 0;
  std::vector<double> mass;
  double infinity = 0;  ///< Probability of a loss beyond the grid, taken for infinite; of a lower bound 0.
};

/// One step on a grid, P and Q being the pair that dominates it: (1 - q) N(0, s^2) + q N(1, s^2) and N(0,
/// s^2), exchanged for Direction::add. For Sampling::once_an_epoch one epoch, as a step in which all take
/// part: a record takes part once, and the step in which it does is no part of its data. That bound is valid
/// and does not gain from the drawing.
///
/// Bound::upper: what lies between two grid points is split between both, such that P and Q keep their mass.
/// From the result the step's output can be drawn, so that it loses at least as much. Source: Doroshenko et
/// al., "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions", PoPETs 2022.
///
/// Bound::lower: outcomes are merged into runs whose P over Q is a grid point. That can be computed from the
/// step's output, so that it loses at most as much (data processing). What fits no run is left out.
LossDistribution discretise(const SampledGaussian& step, Direction direction, Bound bound, double grid);

/// From the least to the greatest loss that discretise() puts on its grid.
double range_of(const SampledGaussian& step, Direction direction);

/// So many independent repetitions.
struct Repeated {
  LossDistribution loss;
  std::int64_t times = 1;
};

/// The sum of independent losses.
struct Composition {
  LossDistribution loss;
  double error = 0;  ///< Of a delta computed from it: the tails that were cut, and rounding.

  /// The smallest epsilon, at least 0, with delta(epsilon) <= delta; infinity where there is none.
  double epsilon(double delta, Bound bound) const;
  /// The probability that is beyond e^epsilon: the hockey-stick divergence, in [0, 1].
  double delta(double epsilon, Bound bound) const;
};

/// By Fourier transforms: Koskela, Jaelkoe and Honkela, "Computing Tight Differential Privacy Guarantees
/// Using FFT", AISTATS 2020. All parts, at least one, have the same grid. The window leaves out at most
/// `tail` on each side, by Chernoff's bound; what is outside wraps around.
Composition compose(const std::vector<Repeated>& parts, double tail);

/// How many points of the grid the window of compose() has.
std::int64_t points_of(const std::vector<Repeated>& parts, double tail);

}  // namespace dtrain::privacy
