#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/element.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {

/// Thirty-two bytes of T in GCC's and Clang's vector notation: works lane by lane with the usual operators,
/// in AVX2 inside with_avx2() and in two halves elsewhere. Passed by reference, since how a vector is passed
/// by value depends on the instruction set.
template <class T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(32)));
  static constexpr std::size_t kWidth = 32 / sizeof(T);
};

/// Reads a vector, or one number, from any address.
template <class V, class T>
DTRAIN_VECTOR_BODY inline void load(V& value, const T* from) {
  std::memcpy(&value, from, sizeof(V));
}

template <class V, class T>
DTRAIN_VECTOR_BODY inline void store(T* to, const V& value) {
  std::memcpy(to, &value, sizeof(V));
}

/// The bits of a vector of floats, and as many of bfloat16.
template <class V>
struct FloatBits {
  typedef std::uint32_t Wide __attribute__((vector_size(sizeof(V))));
  typedef std::int32_t Signed __attribute__((vector_size(sizeof(V))));
  typedef std::uint16_t Narrow __attribute__((vector_size(sizeof(V) / 2)));
};

/// The same of bfloat16, as floats; stored ones are rounded as from_float() rounds.
template <class V>
DTRAIN_VECTOR_BODY inline void load(V& value, const Bfloat16* from) {
  if constexpr (std::is_same_v<V, float>) {
    value = to_float(*from);
  } else {
    using Bits = FloatBits<V>;
    typename Bits::Narrow bits;
    std::memcpy(&bits, from, sizeof(bits));
    const auto wide = __builtin_convertvector(bits, typename Bits::Wide) << 16;
    std::memcpy(&value, &wide, sizeof(V));
  }
}

template <class V>
DTRAIN_VECTOR_BODY inline void store(Bfloat16* to, const V& value) {
  if constexpr (std::is_same_v<V, float>) {
    *to = from_float<Bfloat16>(value);
  } else {
    using Bits = FloatBits<V>;
    typename Bits::Wide bits;
    std::memcpy(&bits, &value, sizeof(V));
    const auto rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const auto size = reinterpret_cast<typename Bits::Signed>(bits & 0x7FFF'FFFFU);
    const auto upper = (size > 0x7F80'0000 ? bits | 0x40'0000U : rounded) >> 16;  // a NaN stays one
    const auto narrow = __builtin_convertvector(upper, typename Bits::Narrow);
    std::memcpy(static_cast<void*>(to), &narrow, sizeof(narrow));
  }
}

}  // namespace dtrain::kernels
