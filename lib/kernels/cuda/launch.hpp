#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

namespace dtrain::kernels {

inline constexpr int kThreads = 256;  ///< Of a block.

/// Puts `kernel` into `stream`, as <<<>>> does; check_launch() says whether CUDA has taken it. A call of
/// CUDA's library: the tests that run kernels on a CPU have their own.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
  how.blockDim = threads;
  how.stream = stream;
  cudaLaunchKernelEx(&how, kernel, arguments...);
}

/// Throws Error where CUDA has refused the launch before.
void check_launch(const char* kernel);

/// A block has a row; it takes further ones where the blocks do not suffice.
inline unsigned blocks_for(std::size_t rows) {
  constexpr std::size_t kMostBlocks = 4096;
  return static_cast<unsigned>(std::clamp<std::size_t>(rows, 1, kMostBlocks));
}

}  // namespace dtrain::kernels
