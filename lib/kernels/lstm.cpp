#include "kernels/lstm.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

/// exp within 2 ulp on [-87, 88], in operations that compilers vectorise: 2^n x a polynomial of the rest
/// (coefficients: Cephes library, expf).
inline DTRAIN_VECTOR_BODY float exponential(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float kRound = 12582912.0F;  // 1.5 x 2^23: adding it rounds to a whole number
  const float whole = (x * 1.44269504F + kRound) - kRound;
  const float rest = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  sum = sum * rest * rest + rest + 1.0F;
  const std::int32_t power = (static_cast<std::int32_t>(whole) + 127) << 23;
  return sum * std::bit_cast<float>(power);
}

inline DTRAIN_VECTOR_BODY double exponential(double x) { return std::exp(x); }

template <class T>
inline DTRAIN_VECTOR_BODY T sigmoid(T x) {
  return T{1} / (T{1} + exponential(-x));
}

template <class T>
inline DTRAIN_VECTOR_BODY T hyperbolic_tangent(T x) {
  return T{1} - T{2} / (exponential(T{2} * x) + T{1});
}

}  // namespace

template <class T>
void lstm_forward(T* gates, const T* cell_before, T* cell, T* hidden, const LstmCells& cells) {
  const std::size_t width = cells.width;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < cells.rows; ++r) {
      T* input = gates + r * 4 * width;
      T* forget = input + width;
      T* fresh = forget + width;
      T* output = fresh + width;
      const T* before = cell_before + r * width;
      T* now = cell + r * width;
      T* out = hidden + r * width;
#pragma GCC ivdep
      for (std::size_t k = 0; k < width; ++k) {
        const T i = sigmoid(input[k]);
        const T f = sigmoid(forget[k]);
        const T g = hyperbolic_tangent(fresh[k]);
        const T o = sigmoid(output[k]);
        const T c = f * before[k] + i * g;
        input[k] = i;
        forget[k] = f;
        fresh[k] = g;
        output[k] = o;
        now[k] = c;
        out[k] = o * hyperbolic_tangent(c);
      }
    }
  });
}

template <class T>
void lstm_backward(T* gate_gradients, T* cell_gradient, const T* hidden_gradient, const T* carried,
                   const T* activations, const T* cell_before, const T* cell, const LstmCells& cells) {
  const std::size_t width = cells.width;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < cells.rows; ++r) {
      const T* gates = activations + r * 4 * width;
      T* sums = gate_gradients + r * 4 * width;
      T* through = cell_gradient + r * width;
      const T* above = hidden_gradient + r * width;
      const T* later = carried + r * width;
      const T* before = cell_before + r * width;
      const T* now = cell + r * width;
#pragma GCC ivdep
      for (std::size_t k = 0; k < width; ++k) {
        const T i = gates[k];
        const T f = gates[width + k];
        const T g = gates[2 * width + k];
        const T o = gates[3 * width + k];
        const T squashed = hyperbolic_tangent(now[k]);
        const T from_hidden = above[k] + later[k];
        const T from_cell = through[k] + from_hidden * o * (T{1} - squashed * squashed);
        sums[k] = from_cell * g * i * (T{1} - i);
        sums[width + k] = from_cell * before[k] * f * (T{1} - f);
        sums[2 * width + k] = from_cell * i * (T{1} - g * g);
        sums[3 * width + k] = from_hidden * squashed * o * (T{1} - o);
        through[k] = from_cell * f;
      }
    }
  });
}

template void lstm_forward<float>(float*, const float*, float*, float*, const LstmCells&);
template void lstm_forward<double>(double*, const double*, double*, double*, const LstmCells&);
template void lstm_backward<float>(float*, float*, const float*, const float*, const float*, const float*,
                                   const float*, const LstmCells&);
template void lstm_backward<double>(double*, double*, const double*, const double*, const double*,
                                    const double*, const double*, const LstmCells&);

}  // namespace dtrain::kernels
