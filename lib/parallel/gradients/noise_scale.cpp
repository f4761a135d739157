#include "parallel/gradients/noise_scale.hpp"

namespace dtrain::parallel {

NoiseEstimate noise_estimate(const GradientNorms& norms) {
  const double between = norms.small_inverse - norms.large_inverse;
  if (!(between > 0)) return {};
  return {.noise = (norms.small_squares - norms.large_squares) / between,
          .signal = (norms.large_squares * norms.small_inverse - norms.small_squares * norms.large_inverse) /
                    between};
}

}  // namespace dtrain::parallel
