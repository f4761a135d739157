#include "kernels/simd.hpp"

namespace dtrain::kernels {

bool has_avx2() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

}  // namespace dtrain::kernels
