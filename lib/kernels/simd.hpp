#pragma once

namespace dtrain::kernels {

/// Whether this processor has AVX2.
bool has_avx2() noexcept;

/// Marks the body handed to with_avx2, so that it is compiled a second time with AVX2.
#define DTRAIN_VECTOR_BODY __attribute__((always_inline))

#if defined(__x86_64__)
inline constexpr bool kMayHaveAvx2 = true;
template <class Body>
__attribute__((target("avx2"))) void call_with_avx2(const Body& body) {
  body();
}
#else
inline constexpr bool kMayHaveAvx2 = false;
template <class Body>
void call_with_avx2(const Body& body) {
  body();
}
#endif

/// Runs `body`, a lambda marked DTRAIN_VECTOR_BODY, in AVX2 code where the processor has it. AVX2 without FMA
/// rounds each operation as plain code does, so both ways give the same bits.
template <class Body>
void with_avx2(const Body& body) {
  if (kMayHaveAvx2 && has_avx2()) {
    call_with_avx2(body);
  } else {
    body();
  }
}

}  // namespace dtrain::kernels
