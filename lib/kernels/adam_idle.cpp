#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/simd.hpp"
#include "kernels/tiny_as_zero.hpp"
#include "kernels/update.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kBytesAtOnce =
    128;  // of each array: what fits the vector registers, and hides divisions

/// `Count` elements through all steps without leaving the registers.
template <class T, std::size_t Count>
inline DTRAIN_VECTOR_BODY void idle_block(T* parameters, const T* exp_avg, const T* exp_avg_sq,
                                          std::span<const AdamIdleStep> steps, T eps) {
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
  for (std::size_t i = 0; i < Count; ++i) parameters[i] = values[i];
}

}  // namespace

template <class T>
void adam_idle(T* parameters, const T* exp_avg, const T* exp_avg_sq, std::size_t n,
               std::span<const AdamIdleStep> steps, double eps) {
  constexpr std::size_t kCount = kBytesAtOnce / sizeof(T);
  const TinyAsZero tiny;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    const auto small = static_cast<T>(eps);
    std::size_t i = 0;
    for (; i + kCount <= n; i += kCount)
      idle_block<T, kCount>(parameters + i, exp_avg + i, exp_avg_sq + i, steps, small);
    for (; i < n; ++i) idle_block<T, 1>(parameters + i, exp_avg + i, exp_avg_sq + i, steps, small);
  });
}

template <class T>
void adam_fade(T* exp_avg, T* exp_avg_sq, std::size_t n, double idle1, double idle2) {
  const TinyAsZero tiny;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    const auto first = static_cast<T>(idle1);
    const auto second = static_cast<T>(idle2);
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      exp_avg[i] *= first;
      exp_avg_sq[i] *= second;
    }
  });
}

template void adam_idle<float>(float*, const float*, const float*, std::size_t, std::span<const AdamIdleStep>,
                               double);
template void adam_idle<double>(double*, const double*, const double*, std::size_t,
                                std::span<const AdamIdleStep>, double);
template void adam_fade<float>(float*, float*, std::size_t, double, double);
template void adam_fade<double>(double*, double*, std::size_t, double, double);

}  // namespace dtrain::kernels
