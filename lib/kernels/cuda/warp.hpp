#pragma once

#include <cuda_runtime.h>

namespace dtrain::kernels {

inline constexpr unsigned kWarp = 32;  ///< Threads that hand values to one another.

/// The sum over the lanes whose numbers are the same modulo `apart`, a power of two; each of them gets it, to
/// the bit. All lanes of the warp call it.
template <class Value>
__device__ Value sum_over_warp(Value value, unsigned apart = 1) {
  constexpr unsigned kAllLanes = 0xFFFFFFFFU;
  for (unsigned distance = kWarp / 2; distance >= apart; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
  return value;
}

}  // namespace dtrain::kernels
