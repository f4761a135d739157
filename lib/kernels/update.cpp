#include "kernels/update.hpp"

#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"
#include "kernels/tiny_as_zero.hpp"

namespace dtrain::kernels {

template <class T>
void sgd_update(T* parameters, const T* gradients, T* momentum, std::size_t n, const SgdUpdate& update) {
  const auto scale = static_cast<T>(update.scale);
  const auto rate = static_cast<T>(update.learning_rate);
  const auto keep = static_cast<T>(update.momentum);
  const auto decay = static_cast<T>(update.weight_decay);
  const TinyAsZero tiny;
  if (update.momentum == 0.0) {
    with_avx2([=]() DTRAIN_VECTOR_BODY {
      for (std::size_t i = 0; i < n; ++i) {
        parameters[i] -= rate * (gradients[i] * scale + decay * parameters[i]);
      }
    });
    return;
  }
  if (update.nesterov) {
    with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i) {
        const T gradient = gradients[i] * scale + decay * parameters[i];
        const T velocity = keep * momentum[i] + gradient;
        momentum[i] = velocity;
        parameters[i] -= rate * (gradient + keep * velocity);
      }
    });
    return;
  }
  with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const T velocity = keep * momentum[i] + (gradients[i] * scale + decay * parameters[i]);
      momentum[i] = velocity;
      parameters[i] -= rate * velocity;
    }
  });
}

template <class T>
void adam_update(T* parameters, const T* gradients, T* exp_avg, T* exp_avg_sq, std::size_t n,
                 const AdamUpdate& update) {
  const bool decoupled = update.decay == AdamUpdate::Decay::decoupled;
  const auto scale = static_cast<T>(update.scale);
  const auto l2 = static_cast<T>(decoupled ? 0.0 : update.weight_decay);
  const auto shrink = static_cast<T>(decoupled ? 1.0 - update.learning_rate * update.weight_decay : 1.0);
  const auto new1 = static_cast<T>(1.0 - update.beta1);
  const auto keep2 = static_cast<T>(update.beta2);
  const auto new2 = static_cast<T>(1.0 - update.beta2);
  const auto step_size = static_cast<T>(update.learning_rate / update.bias1);
  const auto root_factor = static_cast<T>(1.0 / std::sqrt(update.bias2));
  const auto eps = static_cast<T>(update.eps);
  const auto idle1 = static_cast<T>(update.idle1);
  const auto idle2 = static_cast<T>(update.idle2);
  const TinyAsZero tiny;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const T parameter = parameters[i] * shrink;
      const T gradient = gradients[i] * scale + l2 * parameters[i];
      const T faded = exp_avg[i] * idle1;
      const T first = faded + new1 * (gradient - faded);
      const T second = keep2 * (exp_avg_sq[i] * idle2) + new2 * gradient * gradient;
      exp_avg[i] = first;
      exp_avg_sq[i] = second;
      parameters[i] = parameter - step_size * first / (std::sqrt(second) * root_factor + eps);
    }
  });
}

void round_to_bfloat16(Bfloat16* out, const float* values, std::size_t n) {
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    typename Lanes<float>::Vector some;
    std::size_t i = 0;
    for (; i + Lanes<float>::kWidth <= n; i += Lanes<float>::kWidth) {
      load(some, values + i);
      store(out + i, some);
    }
    for (; i < n; ++i) store(out + i, values[i]);
  });
}

template void sgd_update<float>(float*, const float*, float*, std::size_t, const SgdUpdate&);
template void sgd_update<double>(double*, const double*, double*, std::size_t, const SgdUpdate&);
template void adam_update<float>(float*, const float*, float*, float*, std::size_t, const AdamUpdate&);
template void adam_update<double>(double*, const double*, double*, double*, std::size_t, const AdamUpdate&);

}  // namespace dtrain::kernels
