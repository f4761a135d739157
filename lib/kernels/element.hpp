#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

/// In front of a function that a GPU's code calls too.
#if defined(__CUDACC__)
#define DTRAIN_HOST_DEVICE __host__ __device__
#else
#define DTRAIN_HOST_DEVICE
#endif

namespace dtrain::kernels {

/// What a buffer on a GPU holds.
enum class Element { float32, bfloat16, float16 };

/// The bits of a 16-bit float: bfloat16 (8 bits of exponent) or IEEE 754 binary16 (5 bits). Conversions from
/// float round to nearest, ties to even; NaN stays NaN; what is too large for binary16 becomes infinite.
struct Bfloat16 {
  std::uint16_t bits = 0;
};
struct Float16 {
  std::uint16_t bits = 0;
};

/// What numbers that lie in memory as S are computed in on the CPU.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, Bfloat16>, float, S>;

/// Calls `call` with a null pointer of the element's type.
template <class Call>
void with_element_type(Element type, const Call& call) {
  switch (type) {
    case Element::float32:
      return call(static_cast<float*>(nullptr));
    case Element::bfloat16:
      return call(static_cast<Bfloat16*>(nullptr));
    case Element::float16:
      return call(static_cast<Float16*>(nullptr));
  }
}

DTRAIN_HOST_DEVICE inline std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

DTRAIN_HOST_DEVICE inline float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

DTRAIN_HOST_DEVICE inline float to_float(float value) { return value; }
DTRAIN_HOST_DEVICE inline float to_float(Bfloat16 value) { return float_of(std::uint32_t{value.bits} << 16); }

DTRAIN_HOST_DEVICE inline float to_float(Float16 value) {
#if defined(__CUDA_ARCH__)
  float widened;
  asm("cvt.f32.f16 %0, %1;" : "=f"(widened) : "h"(value.bits));
  return widened;
#else
  const std::uint32_t sign = std::uint32_t{value.bits} >> 15 << 31;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1FU;
  const std::uint32_t fraction = value.bits & 0x3FFU;
  if (exponent == 0) {  // zero, or fraction x 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? size : -size;
  }
  if (exponent == 31) return float_of(sign | 0x7F800000U | fraction << 13);
  return float_of(sign | (exponent + 112) << 23 | fraction << 13);
#endif
}

/// The upper bits of a number whose lower `dropped` ones are rounded away; a carry moves on into the
/// exponent.
DTRAIN_HOST_DEVICE inline std::uint32_t rounded_off(std::uint32_t bits, int dropped) {
  const std::uint32_t odd = (bits >> dropped) & 1U;
  return (bits + (1U << (dropped - 1)) - 1U + odd) >> dropped;
}

template <class T>
DTRAIN_HOST_DEVICE T from_float(float value);

template <>
DTRAIN_HOST_DEVICE inline float from_float<float>(float value) {
  return value;
}

// A GPU rounds by one instruction: the same bits, but of NaN.
template <>
DTRAIN_HOST_DEVICE inline Bfloat16 from_float<Bfloat16>(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Bfloat16 half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
#else
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};  // NaN
  return {static_cast<std::uint16_t>(rounded_off(bits, 16))};
#endif
}

template <>
DTRAIN_HOST_DEVICE inline Float16 from_float<Float16>(float value) {
#if defined(__CUDA_ARCH__)
  Float16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
#else
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 31 << 15;
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (size > 0x7F800000U) {
    half = 0x7E00U;                  // NaN
  } else if (size >= 0x477FF000U) {  // 65520 and more
    half = 0x7C00U;
  } else if (size >= 0x38800000U) {  // 2^-14 and more
    half = rounded_off(size - (112U << 23), 13);
  } else if (size > 0x33000000U) {  // more than half of the smallest, 2^-25: units of 2^-24
    const int shift = 126 - static_cast<int>(size >> 23);
    half = rounded_off((size & 0x7FFFFFU) | 0x800000U, shift);
  }
  return {static_cast<std::uint16_t>(sign | half)};
#endif
}

}  // namespace dtrain::kernels
