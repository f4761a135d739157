// Stands in for CUDA's header, so that the kernels in lib/kernels/cuda run on a CPU: C++ that includes this
// header instead is the code that nvcc compiles for a GPU. It has what those kernels use and nothing else.
//
// The threads of a block are fibers, one block runs after the other. A fiber runs until it waits: at a
// barrier of the block or for its warp's other lanes. A warp runs until all its lanes are at a barrier of the
// block. So no thread is in step with another one by chance, and a missing barrier shows: memory that a block
// shares is filled with NaN before each block, and in every second block the last thread is the first to run.
// A launch throws dtrain::Error where threads of a block wait at different barriers, or for a thread that has
// ended.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __CUDA_ARCH_LIST__ 800

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x;
  unsigned y;
  unsigned z;
};

// Of the fiber that runs.
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace dtrain::cuda_on_cpu {

inline constexpr std::size_t kMostBytes = 16;  ///< That a lane gives to another one at once.

/// Calls `thread` as every thread of every block.
void run(const dim3& blocks, const dim3& threads, const std::function<void()>& thread);
/// In a thread: returns when all threads of its block are here.
void meet_block(const std::source_location& where);
/// In a thread: `own` replaced by what lane `from(lane)` of its warp brought. All 32 lanes must be here.
void exchange(void* own, std::size_t bytes, unsigned from, const std::source_location& where);
/// Of the running thread, in its warp.
unsigned lane();
/// Counts the blocks that have begun, from 1 on: what a block shares is new in each.
std::uint64_t block_number();
/// Fills memory with what a float or a double reads as NaN.
void poison(void* memory, std::size_t bytes);
/// Blocks run from the last to the first.
void reverse_blocks(bool reverse);

}  // namespace dtrain::cuda_on_cpu

inline void __syncthreads(const std::source_location& where = std::source_location::current()) {
  dtrain::cuda_on_cpu::meet_block(where);
}

template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, unsigned mask,
                  const std::source_location& where = std::source_location::current()) {
  static_assert(sizeof value <= dtrain::cuda_on_cpu::kMostBytes);
  dtrain::cuda_on_cpu::exchange(&value, sizeof value, dtrain::cuda_on_cpu::lane() ^ mask, where);
  return value;
}

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline void __stwb(uint4* to, const uint4& value) { std::memcpy(to, &value, sizeof value); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float x, float y) { return x / y; }

// The host's side: a device whose memory is the CPU's.
using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorUnknown = 999 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
inline constexpr unsigned cudaHostRegisterPortable = 1;

inline const char* cudaGetErrorString(cudaError_t) { return "unknown error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
/// Aligned as a GPU's.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
/// An error where something has been written before or behind the memory.
cudaError_t cudaFree(void* memory);
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  cudaStream_t stream;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  const std::tuple<Parameters...> copied(arguments...);
  dtrain::cuda_on_cpu::run(config->gridDim, config->blockDim, [&] { std::apply(kernel, copied); });
  return cudaSuccess;
}
