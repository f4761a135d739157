#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

namespace dtrain::kernels {

inline constexpr int kThreads = 256;  ///< Of a block.

/// As launch(), with so many bytes of launched_memory() for each block.
template <class... Parameters, class... Arguments>
void launch_with_memory(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t bytes,
                        cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
  how.blockDim = threads;
  how.dynamicSmemBytes = bytes;
  how.stream = stream;
  cudaLaunchKernelEx(&how, kernel, arguments...);
}

/// Puts `kernel` into `stream`, as <<<>>> does; check_launch() says whether CUDA has taken it. A call of
/// CUDA's library: the tests that run kernels on a CPU have their own.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
            const Arguments&... arguments) {
  launch_with_memory(kernel, blocks, threads, 0, stream, arguments...);
}

/// Whether a multiprocessor holds `blocks` of the kernel at once that have so many bytes each as
/// launched_memory(), which it lets them have.
template <class... Parameters>
bool holds_with_memory(void (*kernel)(Parameters...), int blocks, unsigned threads, std::size_t bytes) {
  int held = 0;
  const bool has_room = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(bytes)) == cudaSuccess &&
                        cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                            &held, kernel, static_cast<int>(threads), bytes) == cudaSuccess &&
                        held >= blocks;
  if (!has_room) cudaGetLastError();  // what the kernel asked for was no error of a launch
  return has_room;
}

/// Throws Error where CUDA has refused the launch before.
void check_launch(const char* kernel);

/// A block has a row; it takes further ones where the blocks do not suffice.
inline unsigned blocks_for(std::size_t rows) {
  constexpr std::size_t kMostBlocks = 4096;
  return static_cast<unsigned>(std::clamp<std::size_t>(rows, 1, kMostBlocks));
}

}  // namespace dtrain::kernels
