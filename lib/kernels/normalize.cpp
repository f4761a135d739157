#include "kernels/normalize.hpp"

#include "kernels/simd.hpp"

namespace dtrain::kernels {

template <class T>
void normalize_u8(T* out, const std::uint8_t* bytes, std::size_t samples, std::size_t channels,
                  std::size_t plane, const float* mean, const float* deviation) {
  for (std::size_t sample = 0; sample < samples; ++sample) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const double sigma = deviation == nullptr ? 1.0 : double{deviation[channel]};
      const auto factor = static_cast<T>(1.0 / (255.0 * sigma));
      const auto shift = static_cast<T>(mean == nullptr ? 0.0 : -double{mean[channel]} / sigma);
      const std::size_t start = (sample * channels + channel) * plane;
      T* to = out + start;
      const std::uint8_t* from = bytes + start;
      with_avx2([=]() DTRAIN_VECTOR_BODY {
        for (std::size_t i = 0; i < plane; ++i) to[i] = static_cast<T>(from[i]) * factor + shift;
      });
    }
  }
}

template <class T>
void normalize_f32(T* out, const float* values, std::size_t samples, std::size_t channels, std::size_t plane,
                   const float* mean, const float* deviation) {
  for (std::size_t sample = 0; sample < samples; ++sample) {
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const auto center = static_cast<T>(mean[channel]);  // taken off first: values may lie far from 0
      const auto factor = static_cast<T>(1.0 / double{deviation[channel]});
      const std::size_t start = (sample * channels + channel) * plane;
      T* to = out + start;
      const float* from = values + start;
      with_avx2([=]() DTRAIN_VECTOR_BODY {
        for (std::size_t i = 0; i < plane; ++i) to[i] = (static_cast<T>(from[i]) - center) * factor;
      });
    }
  }
}

template void normalize_u8<float>(float*, const std::uint8_t*, std::size_t, std::size_t, std::size_t,
                                  const float*, const float*);
template void normalize_u8<double>(double*, const std::uint8_t*, std::size_t, std::size_t, std::size_t,
                                   const float*, const float*);
template void normalize_f32<float>(float*, const float*, std::size_t, std::size_t, std::size_t, const float*,
                                   const float*);
template void normalize_f32<double>(double*, const float*, std::size_t, std::size_t, std::size_t,
                                    const float*, const float*);

}  // namespace dtrain::kernels
