#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

namespace dtrain::kernels {

inline constexpr int kThreads = 256;  ///< Of a block of the fused kernels.

/// Throws Error where CUDA has refused the launch before.
void check_launch(const char* kernel);

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
