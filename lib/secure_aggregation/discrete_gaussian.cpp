#include "secure_aggregation/discrete_gaussian.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {

DiscreteGaussian::DiscreteGaussian(std::uint64_t variance, privacy::Keystream& random)
    : random_(random), variance_(variance) {
  if (variance < 1 || variance > kMostVariance) {
    throw usage_error("the variance of a client's noise is not in [1, 2^40] integers squared",
                      "secure aggregation", "give values fewer or more bits");
  }
  scale_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(variance))) + 1;
}

DiscreteGaussian::~DiscreteGaussian() { std::fill(words_.begin(), words_.end(), 0); }

std::uint64_t DiscreteGaussian::word() {
  constexpr std::size_t kAtOnce = 2048;
  if (used_ == words_.size()) {
    words_.resize(kAtOnce);
    random_.fill(std::as_writable_bytes(std::span(words_)));
    used_ = 0;
  }
  return words_[used_++];
}

/// Uniform in [0, bound), by rejection of what lies beyond the last multiple of `bound`.
std::uint64_t DiscreteGaussian::below(std::uint64_t bound) {
  const std::uint64_t rejected = (~std::uint64_t{0} % bound + 1) % bound;
  std::uint64_t drawn = word();
  while (drawn > ~std::uint64_t{0} - rejected) drawn = word();
  return drawn % bound;
}

DiscreteGaussian::Wide DiscreteGaussian::below_wide(Wide bound) {
  if (bound >> 64 == 0) return below(static_cast<std::uint64_t>(bound));
  const Wide rejected = (~Wide{0} % bound + 1) % bound;
  const auto two_words = [this] { return static_cast<Wide>(word()) << 64 | word(); };
  Wide drawn = two_words();
  while (drawn > ~Wide{0} - rejected) drawn = two_words();
  return drawn % bound;
}

/// True with probability exp(-numerator / denominator), which is at most 1. Algorithm 1 of the source.
bool DiscreteGaussian::exp_minus_small(Wide numerator, Wide denominator) {
  std::uint64_t count = 1;
  while (below_wide(denominator * count) < numerator) ++count;
  return count % 2 == 1;
}

bool DiscreteGaussian::exp_minus(Wide numerator, Wide denominator) {
  for (; numerator > denominator; numerator -= denominator) {
    if (!exp_minus_small(1, 1)) return false;
  }
  return exp_minus_small(numerator, denominator);
}

/// P(X = x) in proportion to exp(-|x| / scale_). Algorithm 2 of the source.
std::int64_t DiscreteGaussian::laplace() {
  while (true) {
    const std::uint64_t rest = below(scale_);
    if (!exp_minus_small(rest, scale_)) continue;
    std::uint64_t whole = 0;
    while (exp_minus_small(1, 1)) ++whole;
    const auto size = static_cast<std::int64_t>(rest + scale_ * whole);
    const bool negative = word() >> 63 != 0;
    if (negative && size == 0) continue;  // 0 would be twice as likely
    return negative ? -size : size;
  }
}

/// Algorithm 3 of the source: accepts with probability exp(-(|x| - s / t)^2 / (2 s)), s the variance and t
/// the scale.
std::int64_t DiscreteGaussian::draw() {
  while (true) {
    const std::int64_t drawn = laplace();
    const Wide size = static_cast<Wide>(std::abs(drawn)) * scale_;
    const Wide distance = size > variance_ ? size - variance_ : variance_ - size;
    if (exp_minus(distance * distance, Wide{2} * variance_ * scale_ * scale_)) return drawn;
  }
}

}  // namespace dtrain::secure_aggregation
