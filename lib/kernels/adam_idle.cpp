#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/simd.hpp"
#include "kernels/update.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kBytesAtOnce =
    128;  // of each array: what fits the vector registers, and hides divisions

/// `Count` elements through all steps without leaving the registers.
template <class T, std::size_t Count>
inline DTRAIN_VECTOR_BODY void idle_block(T* parameters, T* exp_avg, T* exp_avg_sq,
                                          std::span<const AdamIdleStep> steps, T eps, T keep1, T keep2) {
  T values[Count];
  T firsts[Count];
  T roots[Count];
  for (std::size_t i = 0; i < Count; ++i) {
    values[i] = parameters[i];
    firsts[i] = exp_avg[i];
    roots[i] = std::sqrt(exp_avg_sq[i]);
  }
  for (const AdamIdleStep& step : steps) {
    const auto moved = static_cast<T>(step.moved);
    const auto spread = static_cast<T>(step.spread);
    const auto shrink = static_cast<T>(step.shrink);
    for (std::size_t i = 0; i < Count; ++i) {
      values[i] = values[i] * shrink - moved * firsts[i] / (roots[i] * spread + eps);
    }
  }
  for (std::size_t i = 0; i < Count; ++i) {
    parameters[i] = values[i];
    exp_avg[i] = firsts[i] * keep1;
    exp_avg_sq[i] *= keep2;
  }
}

}  // namespace

template <class T>
void adam_idle(T* parameters, T* exp_avg, T* exp_avg_sq, std::size_t n, std::span<const AdamIdleStep> steps,
               double eps, double keep1, double keep2) {
  constexpr std::size_t kCount = kBytesAtOnce / sizeof(T);
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    const auto small = static_cast<T>(eps);
    const auto first = static_cast<T>(keep1);
    const auto second = static_cast<T>(keep2);
    std::size_t i = 0;
    for (; i + kCount <= n; i += kCount) {
      idle_block<T, kCount>(parameters + i, exp_avg + i, exp_avg_sq + i, steps, small, first, second);
    }
    for (; i < n; ++i) {
      idle_block<T, 1>(parameters + i, exp_avg + i, exp_avg_sq + i, steps, small, first, second);
    }
  });
}

template void adam_idle<float>(float*, float*, float*, std::size_t, std::span<const AdamIdleStep>, double,
                               double, double);
template void adam_idle<double>(double*, double*, double*, std::size_t, std::span<const AdamIdleStep>, double,
                                double, double);

}  // namespace dtrain::kernels
