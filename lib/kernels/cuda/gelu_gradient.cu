// What stands behind a product in the place of cublasLt's epilogue DGELU_BGRAD, which cublasLt computes by a
// slow kernel of its own, as a second pass.
#include "kernels/cuda/gelu_gradient.hpp"

#include <algorithm>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kAtOnce = 8;      // columns of a thread: 16 bytes
constexpr std::size_t kRowsAtOnce = 4;  // that a thread reads before it uses the first
constexpr unsigned kColumns = 32;       // threads of a block side by side
constexpr unsigned kRows = kThreads / kColumns;
constexpr std::size_t kTile = kColumns * kAtOnce;
constexpr std::size_t kBlocks = 1024;  // where rows suffice
constexpr std::size_t kMostParts = 256;

/// Of the form with tanh, 0.5 x (1 + tanh(u)) = x s, s being the logistic function of 2 u.
__device__ float gelu_slope(float x) {
  constexpr float kRoot = 0.7978845608028654F;  // of 2 / pi
  constexpr float kCubic = 0.044715F;
  const float square = x * x;
  const float twice_u = 2.0F * kRoot * x * (1.0F + kCubic * square);
  const float s = __fdividef(1.0F, 1.0F + __expf(-twice_u));
  return s + x * s * (1.0F - s) * (2.0F * kRoot * (1.0F + 3.0F * kCubic * square));
}

template <class T>
struct Row {
  Elements<T, kAtOnce> gradient, before;
};

/// A block has a tile of columns and every gridDim.y-th group of rows; its sums over them go to `partial`
/// [gridDim.y, inner].
template <class T>
__global__ void __launch_bounds__(kThreads)
    gelu_gradient_kernel(T* gradient, float* partial, const T* before, std::size_t rows, std::size_t inner) {
  const std::size_t column = blockIdx.x * kTile + threadIdx.x * kAtOnce;
  const std::size_t step = std::size_t{gridDim.y} * kRows;
  Elements<float, kAtOnce> own{};
  for (std::size_t first = std::size_t{blockIdx.y} * kRows + threadIdx.y; column < inner && first < rows;
       first += step * kRowsAtOnce) {
    Row<T> values[kRowsAtOnce];
#pragma unroll
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t i = (first + k * step) * inner + column;
      if (first + k * step < rows) values[k] = {loaded<kAtOnce>(gradient + i), loaded<kAtOnce>(before + i)};
    }
#pragma unroll
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      if (first + k * step >= rows) continue;
      Elements<T, kAtOnce> made;
      for (std::size_t e = 0; e < kAtOnce; ++e) {
        const float value = to_float(values[k].gradient.of[e]) * gelu_slope(to_float(values[k].before.of[e]));
        own.of[e] += value;
        made.of[e] = from_float<T>(value);
      }
      store(gradient + (first + k * step) * inner + column, made);
    }
  }
  struct Memory {
    Elements<float, kAtOnce> of[kRows][kColumns];
  };
  auto& of_rows = shared_memory<Memory>().of;
  of_rows[threadIdx.y][threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.y != 0 || column >= inner) return;
  for (unsigned row = 1; row < kRows; ++row)
    for (std::size_t e = 0; e < kAtOnce; ++e) own.of[e] += of_rows[row][threadIdx.x].of[e];
  store(partial + blockIdx.y * inner + column, own);
}

/// A block has 32 columns; of each, kRows threads add up every kRows-th part.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_bias_kernel(T* of_bias, const float* partial, std::size_t parts, std::size_t inner) {
  const std::size_t column = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  float sum = 0.0F;
  for (std::size_t part = threadIdx.y; column < inner && part < parts; part += kRows)
    sum += partial[part * inner + column];
  struct Memory {
    float of[kRows][kColumns];
  };
  auto& of_rows = shared_memory<Memory>().of;
  of_rows[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= inner) return;
  for (unsigned row = 1; row < kRows; ++row) sum += of_rows[row][threadIdx.x];
  of_bias[column] = from_float<T>(sum);
}

}  // namespace

void gelu_gradient_on_gpu(void* gradient, void* of_bias, const void* before, Element type,
                          const InnerProduct& of, void* workspace, cudaStream_t stream) {
  const std::size_t tiles = (of.inner + kTile - 1) / kTile;
  const std::size_t rows_of_block = kRows * kRowsAtOnce;
  const std::size_t room = ProductKernels::kWorkspaceBytes / sizeof(float) / of.inner;
  const std::size_t parts = std::max<std::size_t>(
      std::min({(of.rows + rows_of_block - 1) / rows_of_block, kBlocks / tiles, kMostParts, room}), 1);
  auto* const partial = static_cast<float*>(workspace);
  with_element_type(type, [&]<class T>(T*) {
    launch(gelu_gradient_kernel<T>, dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts)),
           dim3(kColumns, kRows), stream, static_cast<T*>(gradient), partial, static_cast<const T*>(before),
           of.rows, of.inner);
    launch(join_bias_kernel<T>, static_cast<unsigned>((of.inner + kColumns - 1) / kColumns),
           dim3(kColumns, kRows), stream, static_cast<T*>(of_bias), partial, parts, of.inner);
  });
  check_launch("gelu_gradient");
}

}  // namespace dtrain::kernels
