#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::privacy {

/// How the records of a step are drawn. An accountant is bound to it: what holds for one sampler does not
/// hold for another one.
enum class Sampling {
  poisson,        ///< Each record takes part in each step with the same probability, independent of all else.
  once_an_epoch,  ///< Each record takes part in one step of each epoch, drawn evenly and independently.
};

/// Throws Error (exit code 2) naming the samplers there are.
Sampling parse_sampling(const std::string& text);
std::string name_of(Sampling sampling);

/// Of one noise, in a run. Sums over so many steps of the largest grid fit 64 bits.
inline constexpr std::int64_t kMostSteps = 1'000'000'000'000;

/// Steps that add Gaussian noise to a sum over drawn records, of which each contributes at most the clip
/// norm.
///
/// Adjacency: two datasets are neighbours if one has one record more (add or remove one). The sensitivity of
/// the sum is then the clip norm; noise is given as a multiple of it.
struct SampledGaussian {
  Sampling sampling = Sampling::poisson;
  double noise_multiplier = 1;  ///< Standard deviation of the noise over the clip norm; 0: no noise.
  double rate = 1;         ///< The share of records in a step, in (0, 1]. once_an_epoch: 1 / steps per epoch.
  std::int64_t steps = 1;  ///< That were made. A step made twice counts twice.

  /// Of once_an_epoch, the steps of an epoch.
  std::int64_t steps_per_epoch() const;
  /// Of once_an_epoch, the epochs that were begun: a part of one counts as a whole one.
  std::int64_t epochs() const;

  /// Throws Error (exit code 2) at the first value that cannot be.
  void validate() const;
};

/// All steps of a run.
using Mechanisms = std::vector<SampledGaussian>;

/// Throws Error (exit code 2) unless delta is in (0, 1).
void require_delta(double delta);

}  // namespace dtrain::privacy
