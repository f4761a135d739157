#pragma once

#include <string>

#include "privacy/loss_distribution.hpp"
#include "privacy/sampled_gaussian.hpp"

namespace dtrain::privacy {

/// How epsilon is computed.
enum class Accounting {
  renyi,  ///< Renyi divergences: an upper bound, fast.
  loss,   ///< Distributions of the privacy loss: certified from above and below, and tighter.
};

/// Throws Error (exit code 2) naming the kinds there are.
Accounting parse_accounting(const std::string& text);
std::string name_of(Accounting accounting);

/// An epsilon at `delta` that all mechanisms in turn keep to. With Accounting::loss a bound from above; steps
/// of Sampling::once_an_epoch count there as if all records took part once an epoch, and the smaller of both
/// accountings is taken where there are any. Infinity where there is no noise. Throws Error (exit code 2) for
/// values that cannot be.
double epsilon_of(const Mechanisms& mechanisms, double delta, Accounting accounting);

/// The distribution's epsilon with an error to one side. Of Sampling::poisson the lower one says how far the
/// upper one may be from the truth; for Sampling::once_an_epoch there is no lower one, and it is 0.
/// Noise of less than 0.036 of the clip norm is counted as none: infinity, and 0 from below.
/// `resolution`: points of the grid in a standard deviation of one step's loss.
double loss_epsilon(const Mechanisms& mechanisms, double delta, Bound bound, int resolution = 64);

/// Above it nothing is protected, and the grid of a privacy loss would take the memory.
inline constexpr double kMostEpsilon = 500;

/// The least noise multiplier with which `mechanism` keeps to `epsilon` at `delta`, up to 1e-4 of it. Throws
/// Error (exit code 2) where none does.
double noise_for(double epsilon, double delta, const SampledGaussian& mechanism, Accounting accounting);

/// The most steps with which `mechanism`, after `before`, keeps to `epsilon` at `delta`; 0 where one is too
/// much. At most `most`.
std::int64_t steps_within(double epsilon, double delta, const Mechanisms& before,
                          const SampledGaussian& mechanism, Accounting accounting, std::int64_t most);

}  // namespace dtrain::privacy
