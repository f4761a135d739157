#include "kernels/perceptron.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::int64_t kNoClass = -100;

}  // namespace

template <class T>
void rectify(T* values, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t i = 0; i < n; ++i) values[i] = values[i] < T{0} ? T{0} : values[i];
  });
}

template <class T>
void rectify_gradient(T* gradient, const T* outputs, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) gradient[i] = outputs[i] <= T{0} ? T{0} : gradient[i];
  });
}

template <class T>
CrossEntropy cross_entropy(T* logits, const std::int64_t* targets, std::size_t rows, std::size_t classes) {
  CrossEntropy sums;
  for (std::size_t r = 0; r < rows; ++r) {
    T* const row = logits + r * classes;
    if (targets[r] == kNoClass) {
      std::fill(row, row + classes, T{0});
      continue;
    }
    if (targets[r] < 0 || targets[r] >= static_cast<std::int64_t>(classes)) {
      sums.unknown = r;
      return sums;
    }
    const auto target = static_cast<std::size_t>(targets[r]);
    const T* const largest = std::max_element(row, row + classes);
    sums.correct += static_cast<std::size_t>(largest - row) == target ? 1 : 0;
    const T most = *largest;
    const T of_target = row[target] - most;
    T sum{0};
    for (std::size_t c = 0; c < classes; ++c) {
      row[c] = std::exp(row[c] - most);
      sum += row[c];
    }
    sums.loss += static_cast<double>(std::log(sum) - of_target);
    for (std::size_t c = 0; c < classes; ++c) row[c] /= sum;
    row[target] -= T{1};
  }
  return sums;
}

template void rectify<float>(float*, std::size_t);
template void rectify<double>(double*, std::size_t);
template void rectify_gradient<float>(float*, const float*, std::size_t);
template void rectify_gradient<double>(double*, const double*, std::size_t);
template CrossEntropy cross_entropy<float>(float*, const std::int64_t*, std::size_t, std::size_t);
template CrossEntropy cross_entropy<double>(double*, const std::int64_t*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
