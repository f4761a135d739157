// The gradient of a bias: a sum over rows, by itself or with GELU's gradient made on the way. The latter
// stands behind a product in the place of cublasLt's epilogue DGELU_BGRAD, which cublasLt computes by a slow
// kernel of its own, as a second pass. LibTorch's sum over the 16,384 rows of gpt2's layers took 34 us each
// on an H200, 2026-11-26, for 25 to 75 MB.
#include "kernels/cuda/bias_gradient.hpp"

#include <algorithm>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kWide = 8;        // columns of a thread: 16 bytes
constexpr std::size_t kRowsAtOnce = 4;  // that a thread reads before it uses the first
constexpr unsigned kColumns = 32;       // threads of a block side by side
constexpr unsigned kRows = kThreads / kColumns;
constexpr std::size_t kBlocks = 1024;  // where rows suffice

/// Of the form with tanh, 0.5 x (1 + tanh(u)) = x s, s being the logistic function of 2 u.
__device__ float gelu_slope(float x) {
  constexpr float kRoot = 0.7978845608028654F;  // of 2 / pi
  constexpr float kCubic = 0.044715F;
  const float square = x * x;
  const float twice_u = 2.0F * kRoot * x * (1.0F + kCubic * square);
  const float s = __fdividef(1.0F, 1.0F + __expf(-twice_u));
  return s + x * s * (1.0F - s) * (2.0F * kRoot * (1.0F + 3.0F * kCubic * square));
}

/// Where GELU's gradient is read and written; null where the values are added up as they are.
template <class T>
struct Gelu {
  const T* before = nullptr;
  T* gradient = nullptr;
};

/// A block has a tile of columns and every gridDim.y-th group of rows; its sums over them go to `partial`
/// [gridDim.y, columns].
template <class T, std::size_t kAtOnce, bool kHasGelu>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(float* partial, const T* values, Gelu<T> gelu, std::size_t rows, std::size_t columns) {
  const std::size_t column = (std::size_t{blockIdx.x} * kColumns + threadIdx.x) * kAtOnce;
  const std::size_t step = std::size_t{gridDim.y} * kRows;
  Elements<float, kAtOnce> own{};
  for (std::size_t first = std::size_t{blockIdx.y} * kRows + threadIdx.y; column < columns && first < rows;
       first += step * kRowsAtOnce) {
    Elements<T, kAtOnce> read[kRowsAtOnce];
    Elements<T, kAtOnce> before[kHasGelu ? kRowsAtOnce : 1];
#pragma unroll
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      const std::size_t i = (first + k * step) * columns + column;
      if (first + k * step >= rows) continue;
      read[k] = loaded<kAtOnce>(values + i);
      if constexpr (kHasGelu) before[k] = loaded<kAtOnce>(gelu.before + i);
    }
#pragma unroll
    for (std::size_t k = 0; k < kRowsAtOnce; ++k) {
      if (first + k * step >= rows) continue;
      Elements<T, kAtOnce> made;
      for (std::size_t e = 0; e < kAtOnce; ++e) {
        float value = to_float(read[k].of[e]);
        if constexpr (kHasGelu) {
          value *= gelu_slope(to_float(before[k].of[e]));
          made.of[e] = from_float<T>(value);
        }
        own.of[e] += value;
      }
      if constexpr (kHasGelu) store(gelu.gradient + (first + k * step) * columns + column, made);
    }
  }
  struct Memory {
    Elements<float, kAtOnce> of[kRows][kColumns];
  };
  auto& of_rows = shared_memory<Memory>().of;
  of_rows[threadIdx.y][threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (unsigned row = 1; row < kRows; ++row)
    for (std::size_t e = 0; e < kAtOnce; ++e) own.of[e] += of_rows[row][threadIdx.x].of[e];
  store(partial + blockIdx.y * columns + column, own);
}

/// A block has 32 columns; of each, kRows threads add up every kRows-th part. Columns from `width` on go to
/// `rest`.
__global__ void __launch_bounds__(kThreads)
    join_parts_kernel(float* sums, float* rest, std::size_t width, const float* partial, std::size_t parts,
                      std::size_t columns) {
  const std::size_t column = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  float sum = 0.0F;
  for (std::size_t part = threadIdx.y; column < columns && part < parts; part += kRows)
    sum += partial[part * columns + column];
  struct Memory {
    float of[kRows][kColumns];
  };
  auto& of_rows = shared_memory<Memory>().of;
  of_rows[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (unsigned row = 1; row < kRows; ++row) sum += of_rows[row][threadIdx.x];
  (column < width ? sums + column : rest + (column - width))[0] = sum;
}

void join_parts(float* sums, float* rest, std::size_t width, const float* partial, std::size_t parts,
                std::size_t columns, cudaStream_t stream) {
  launch(join_parts_kernel, static_cast<unsigned>((columns + kColumns - 1) / kColumns), dim3(kColumns, kRows),
         stream, sums, rest, width, partial, parts, columns);
}

/// `room`: rows of `partial`.
template <std::size_t kAtOnce, bool kHasGelu, class T>
void sum_columns(float* sums, float* partial, std::size_t room, const T* values, const Gelu<T>& gelu,
                 std::size_t rows, std::size_t columns, cudaStream_t stream) {
  const std::size_t tiles = (columns + kColumns * kAtOnce - 1) / (kColumns * kAtOnce);
  const std::size_t rows_of_block = kRows * kRowsAtOnce;
  const std::size_t parts =
      std::max<std::size_t>(std::min({(rows + rows_of_block - 1) / rows_of_block, kBlocks / tiles, room}), 1);
  launch(column_sums_kernel<T, kAtOnce, kHasGelu>,
         dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts)), dim3(kColumns, kRows), stream,
         partial, values, gelu, rows, columns);
  join_parts(sums, nullptr, columns, partial, parts, columns, stream);
}

}  // namespace

void join_parts_on_gpu(const std::array<float*, 2>& sums, const float* partial, std::size_t parts,
                       std::size_t width, cudaStream_t stream) {
  if (width > 0) join_parts(sums[0], sums[1], width, partial, parts, 2 * width, stream);
}

void column_sums_on_gpu(float* sums, float* partial, const void* values, Element type, std::size_t rows,
                        std::size_t columns, cudaStream_t stream) {
  if (columns == 0) return;
  const bool wide = columns % kWide == 0 && are_aligned({partial, values});
  with_element_type(type, [&]<class T>(T*) {
    const auto* const of_type = static_cast<const T*>(values);
    if (wide) {
      sum_columns<kWide, false>(sums, partial, FusedKernels::kPartialRows, of_type, Gelu<T>(), rows, columns,
                                stream);
    } else {
      sum_columns<1, false>(sums, partial, FusedKernels::kPartialRows, of_type, Gelu<T>(), rows, columns,
                            stream);
    }
  });
  check_launch("column_sums");
}

void gelu_gradient_on_gpu(void* gradient, float* of_bias, const void* before, Element type,
                          const InnerProduct& of, void* workspace, cudaStream_t stream) {
  const std::size_t room = std::min(ProductKernels::kWorkspaceBytes / sizeof(float) / of.inner,
                                    std::size_t{FusedKernels::kPartialRows});
  with_element_type(type, [&]<class T>(T*) {
    const Gelu<T> gelu{static_cast<const T*>(before), static_cast<T*>(gradient)};
    sum_columns<kWide, true>(of_bias, static_cast<float*>(workspace), room, static_cast<const T*>(gradient),
                             gelu, of.rows, of.inner, stream);
  });
  check_launch("gelu_gradient");
}

}  // namespace dtrain::kernels
