#pragma once

#include <cstddef>
#include <cstring>

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

}  // namespace dtrain::kernels
