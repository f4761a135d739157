#include "kernels/products.hpp"

#include <algorithm>
#include <atomic>

namespace dtrain::kernels {
namespace {

std::size_t widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return Avx512::kBytes;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Avx2::kBytes;
#endif
  return Plain::kBytes;
}

std::atomic<std::size_t>& vector_limit() {
  static std::atomic<std::size_t> limit = widest_vectors();
  return limit;
}

}  // namespace

std::size_t product_vector_bytes() { return vector_limit().load(std::memory_order_relaxed); }

void limit_product_vectors(std::size_t bytes) { vector_limit() = std::min(bytes, widest_vectors()); }

}  // namespace dtrain::kernels
