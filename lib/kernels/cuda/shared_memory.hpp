#pragma once

#include <cuda_runtime.h>

namespace dtrain::kernels {

/// Memory of the block's threads together: the same in each call with this type. Holds anything at first; `T`
/// needs no constructor.
template <class T>
__device__ T& shared_memory() {
  __shared__ alignas(T) unsigned char memory[sizeof(T)];
  return *reinterpret_cast<T*>(memory);
}

}  // namespace dtrain::kernels
