#pragma once

namespace dtrain::parallel {

/// What one step shows of the noise of its gradient. Squared norms are those of mean gradients, which a batch
/// of n samples has as |G|^2 + S / n in the mean, with the true gradient G and the trace S of the covariance
/// of a sample's gradient.
struct GradientNorms {
  double small_squares = 0;  ///< Mean over the copies, each of its own samples.
  double small_inverse = 0;  ///< Mean over the copies of 1 / samples.
  double large_squares = 0;  ///< Of the whole step.
  double large_inverse = 0;  ///< 1 / samples of the step.
};

/// S and |G|^2 that follow, each without bias; both 0 where the norms are of equally many samples. Either may
/// be negative: they are to be averaged over steps, apart from each other. Source: McCandlish et al., "An
/// Empirical Model of Large-Batch Training", 2018, appendix A.1.
struct NoiseEstimate {
  double noise = 0;   ///< S
  double signal = 0;  ///< |G|^2
};
NoiseEstimate noise_estimate(const GradientNorms& norms);

}  // namespace dtrain::parallel
