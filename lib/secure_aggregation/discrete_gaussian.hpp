#pragma once

#include <cstdint>
#include <vector>

#include "privacy/keystream.hpp"

namespace dtrain::secure_aggregation {

inline constexpr std::uint64_t kMostVariance = std::uint64_t{1} << 40;

/// Integers X with P(X = x) in proportion to exp(-x^2 / (2 variance)). Exact: only integers are compared with
/// uniform integers, so no rounding of a logarithm tells anything.
/// Source: Canonne, Kamath, Steinke 2020, algorithms 1 to 3.
class DiscreteGaussian {
 public:
  /// `variance`: in [1, kMostVariance]. `random` must live as long. Throws Error (exit code 2) for others.
  DiscreteGaussian(std::uint64_t variance, privacy::Keystream& random);
  ~DiscreteGaussian();
  DiscreteGaussian(const DiscreteGaussian&) = delete;
  DiscreteGaussian& operator=(const DiscreteGaussian&) = delete;

  std::int64_t draw();

 private:
  __extension__ typedef unsigned __int128 Wide;

  std::uint64_t word();
  std::uint64_t below(std::uint64_t bound);
  Wide below_wide(Wide bound);
  bool exp_minus(Wide numerator, Wide denominator);
  bool exp_minus_small(Wide numerator, Wide denominator);
  std::int64_t laplace();

  privacy::Keystream& random_;
  std::uint64_t variance_;
  std::uint64_t scale_;               // of the Laplace distribution that is drawn from first
  std::vector<std::uint64_t> words_;  // random bits not yet used
  std::size_t used_ = 0;
};

}  // namespace dtrain::secure_aggregation
