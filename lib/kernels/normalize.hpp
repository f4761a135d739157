#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::kernels {

/// Bytes to network inputs: out = (byte / 255 - mean[c]) / deviation[c], to rounding.
/// Shape: `bytes` and `out` [samples, channels, plane] (plane = H x W), `mean` and `deviation` [channels],
/// of values in [0, 1]; both null: byte / 255.
template <class T>
void normalize_u8(T* out, const std::uint8_t* bytes, std::size_t samples, std::size_t channels,
                  std::size_t plane, const float* mean, const float* deviation);

/// Floats to network inputs in the same way: out = (value - mean[c]) / deviation[c], to rounding. `mean` and
/// `deviation` may not be null.
template <class T>
void normalize_f32(T* out, const float* values, std::size_t samples, std::size_t channels, std::size_t plane,
                   const float* mean, const float* deviation);

extern template void normalize_u8<float>(float*, const std::uint8_t*, std::size_t, std::size_t, std::size_t,
                                         const float*, const float*);
extern template void normalize_u8<double>(double*, const std::uint8_t*, std::size_t, std::size_t, std::size_t,
                                          const float*, const float*);
extern template void normalize_f32<float>(float*, const float*, std::size_t, std::size_t, std::size_t,
                                          const float*, const float*);
extern template void normalize_f32<double>(double*, const float*, std::size_t, std::size_t, std::size_t,
                                           const float*, const float*);

}  // namespace dtrain::kernels
