#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace dtrain::kernels {

// What lies between the products of a perceptron (small_gemm.hpp). Row-major, dense, float or double.

/// values = max(values, 0); what is not a number stays so.
template <class T>
void rectify(T* values, std::size_t n);

/// The same backward: gradient is 0 where the rectified `outputs` are 0.
template <class T>
void rectify_gradient(T* gradient, const T* outputs, std::size_t n);

/// What cross_entropy() comes to, over all rows.
struct CrossEntropy {
  double loss = 0;
  std::int64_t correct = 0;                 ///< Rows whose first largest logit is their target's.
  std::optional<std::size_t> unknown = {};  ///< The first row whose target is no class; then nothing holds.
};

/// The sum over the rows of log(sum_c exp(logits_c)) - logits_target. `logits` [rows, classes] becomes its
/// gradient, softmax(logits) less 1 for the target. A row with target -100 counts for nothing, as PyTorch
/// has it.
template <class T>
CrossEntropy cross_entropy(T* logits, const std::int64_t* targets, std::size_t rows, std::size_t classes);

extern template void rectify<float>(float*, std::size_t);
extern template void rectify<double>(double*, std::size_t);
extern template void rectify_gradient<float>(float*, const float*, std::size_t);
extern template void rectify_gradient<double>(double*, const double*, std::size_t);
extern template CrossEntropy cross_entropy<float>(float*, const std::int64_t*, std::size_t, std::size_t);
extern template CrossEntropy cross_entropy<double>(double*, const std::int64_t*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
