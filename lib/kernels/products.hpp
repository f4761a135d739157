#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"

// Loops of multiply-and-add, compiled for each instruction set. The files that use them are compiled with
// -ffp-contract=fast: a product and a sum are one fused operation where the processor has it.

namespace dtrain::kernels {

/// Bytes of the vectors that products are made of on this processor: 64 (AVX-512), 32 (AVX2 with FMA) or 16.
std::size_t product_vector_bytes();
/// At most so many from now on: what other processors compute, for tests.
void limit_product_vectors(std::size_t bytes);

struct Avx512 {
  static constexpr std::size_t kBytes = 64;
};
struct Avx2 {
  static constexpr std::size_t kBytes = 32;
};
struct Plain {
  static constexpr std::size_t kBytes = 16;
};

/// A vector of so many bytes in GCC's and Clang's notation; 0: one number.
template <class T, std::size_t Bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(Bytes)));
};
template <class T>
struct VectorOf<T, 0> {
  using Type = T;
};

#if defined(__x86_64__)
template <class Body>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma"))) void call_with_avx512(
    const Body& body) {
  body(Avx512());
}
template <class Body>
__attribute__((target("avx2,fma"))) void call_with_fma(const Body& body) {
  body(Avx2());
}
#endif

/// Runs `body(set)`, a lambda marked DTRAIN_VECTOR_BODY, in code of the best instruction set there is.
template <class Body>
void with_products(const Body& body) {
#if defined(__x86_64__)
  const std::size_t bytes = product_vector_bytes();
  if (bytes == Avx512::kBytes) return call_with_avx512(body);
  if (bytes == Avx2::kBytes) return call_with_fma(body);
#endif
  body(Plain());
}

/// Calls work.operator()<count>() for a count of 1 to 6.
template <class Work>
DTRAIN_VECTOR_BODY inline void with_count(std::size_t count, const Work& work) {
  switch (count) {
    case 6:
      return work.template operator()<6>();
    case 5:
      return work.template operator()<5>();
    case 4:
      return work.template operator()<4>();
    case 3:
      return work.template operator()<3>();
    case 2:
      return work.template operator()<2>();
    default:
      return work.template operator()<1>();
  }
}

}  // namespace dtrain::kernels
