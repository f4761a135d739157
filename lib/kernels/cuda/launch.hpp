#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace dtrain::kernels {

inline constexpr int kThreads = 256;  ///< Of a block of the fused kernels.

/// Throws Error where CUDA has refused the launch before.
inline void check_launch(const char* kernel) {
  const cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess) return;
  throw Error(
      cudaGetErrorString(code),
      {.subject = std::string("kernel ") + kernel,
       .advice =
           "look at nvidia-smi and the kernel log for errors of the GPU, or leave out --kernels fused"});
}

/// A block has a row; it takes further ones where the blocks do not suffice.
inline unsigned blocks_for(std::size_t rows) {
  constexpr std::size_t kMostBlocks = 4096;
  return static_cast<unsigned>(std::clamp<std::size_t>(rows, 1, kMostBlocks));
}

/// 16 bytes at once.
template <class T>
struct alignas(16) Vector {
  static constexpr std::size_t kElements = 16 / sizeof(T);
  T of[kElements];
};

}  // namespace dtrain::kernels
