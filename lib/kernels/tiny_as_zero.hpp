#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace dtrain::kernels {

/// While it lives, this thread computes with zero in place of numbers too small for full precision
/// (subnormal: below 1.2e-38 as float). A processor takes some hundred cycles for each of them, and moments
/// of a parameter whose gradient stays zero end there: the smallest one times 0.9 rounds to itself.
class TinyAsZero {
 public:
#if defined(__x86_64__)
  TinyAsZero() { _mm_setcsr(before_ | kFlushResults | kFlushFactors); }
  ~TinyAsZero() { _mm_setcsr(before_); }
#else
  TinyAsZero() = default;
  ~TinyAsZero() = default;
#endif
  TinyAsZero(const TinyAsZero&) = delete;
  TinyAsZero& operator=(const TinyAsZero&) = delete;

#if defined(__x86_64__)
 private:
  static constexpr unsigned kFlushResults = 0x8000;  // Intel's manual, volume 1, 10.2.3: bits of MXCSR
  static constexpr unsigned kFlushFactors = 0x0040;
  unsigned before_ = _mm_getcsr();
#endif
};

}  // namespace dtrain::kernels
