// Layer norms of sums. A row stays in the registers of one warp, or of a few: memory is read once, all of a
// row's loads are under way together, and a row that one warp has needs no barrier. A block for each row,
// with trees over its threads, took 96 us forward and 212 us back for 16,384 rows of 768 in bf16 (H200,
// 2026-11-26). Bytes alone, 151 and 176 MB, predict 35 and 41 us there.
#include "kernels/cuda/residual_norm.hpp"

#include "core/error.hpp"
#include "kernels/cuda/bias_gradient.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"
#include "kernels/cuda/warp.hpp"

namespace dtrain::kernels {
namespace {

/// How rows lie over a block's threads: `warps` have a row, and each of their threads has `chunks` times
/// `at_once` neighbours of it.
template <std::size_t at_once, std::size_t chunks, unsigned warps>
struct RowShape {
  static constexpr std::size_t kAtOnce = at_once;
  static constexpr std::size_t kChunks = chunks;
  static constexpr unsigned kWarps = warps;
  static constexpr unsigned kThreadsOfRow = warps * kWarp;
  static constexpr unsigned kRows = kThreads / kThreadsOfRow;  // that a block has at once
  static constexpr std::size_t kWidest = at_once * chunks * kThreadsOfRow;

  static __device__ unsigned row_of_thread() { return threadIdx.x / kThreadsOfRow; }

  /// Calls `work(chunk, column)` for the thread's chunks that lie before `columns`, a multiple of kAtOnce.
  template <class Work>
  static __device__ void over_chunks(std::size_t columns, const Work& work) {
#pragma unroll
    for (std::size_t k = 0; k < kChunks; ++k) {
      const std::size_t column = (k * kThreadsOfRow + threadIdx.x % kThreadsOfRow) * kAtOnce;
      if (column < columns) work(k, column);
    }
  }
};

struct TwoSums {
  float first;
  float second;
};
__device__ void add(float& sum, float other) { sum += other; }
__device__ void add(TwoSums& sum, const TwoSums& other) {
  sum.first += other.first;
  sum.second += other.second;
}
__device__ float over_warp(float own) { return sum_over_warp(own); }
__device__ TwoSums over_warp(const TwoSums& own) {
  return {sum_over_warp(own.first), sum_over_warp(own.second)};
}

/// Sums over all threads of a row, in an order that is always the same; each of them gets the sum. All
/// threads of the block take part each time.
template <class Shape, class Sum>
class RowSums {
 public:
  __device__ Sum of(const Sum& own) {
    Sum sum = over_warp(own);
    if constexpr (Shape::kWarps > 1) {
      // Taken in turns: a thread that writes again has passed the barrier behind which all have read.
      Sum* const of_warps = shared_memory<Memory>().sums[turn_];
      turn_ = 1 - turn_;
      if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sum;
      __syncthreads();
      const Sum* const of_row = of_warps + Shape::row_of_thread() * Shape::kWarps;
      sum = of_row[0];
      for (unsigned warp = 1; warp < Shape::kWarps; ++warp) add(sum, of_row[warp]);
    }
    return sum;
  }

 private:
  struct Memory {
    Sum sums[2][kThreads / kWarp];
  };
  unsigned turn_ = 0;
};

/// `branch` null: `sum` is not written, and the input is what is normed.
template <class Shape, class T, class Branch>
__global__ void __launch_bounds__(kThreads)
    residual_norm_kernel(float* sum, T* normed, float* means, float* deviations, const float* input,
                         const Branch* branch, const float* weight, const float* bias, NormRows rows) {
  constexpr std::size_t kAtOnce = Shape::kAtOnce;
  const auto width = static_cast<float>(rows.width);
  RowSums<Shape, float> sums;
  // As often for each thread of a block, with a row or without: they meet in the sums.
  for (std::size_t first = std::size_t{blockIdx.x} * Shape::kRows; first < rows.rows;
       first += std::size_t{gridDim.x} * Shape::kRows) {
    const std::size_t r = first + Shape::row_of_thread();
    const std::size_t columns = r < rows.rows ? rows.width : 0;
    const std::size_t at = r * rows.width;
    Elements<float, kAtOnce> values[Shape::kChunks];
    Shape::over_chunks(columns,
                       [&](std::size_t k, std::size_t i) { values[k] = loaded<kAtOnce>(input + at + i); });
    if (branch != nullptr) {
      Elements<Branch, kAtOnce> added[Shape::kChunks];
      Shape::over_chunks(columns,
                         [&](std::size_t k, std::size_t i) { added[k] = loaded<kAtOnce>(branch + at + i); });
      Shape::over_chunks(columns, [&](std::size_t k, std::size_t i) {
        for (std::size_t e = 0; e < kAtOnce; ++e) values[k].of[e] += to_float(added[k].of[e]);
        store(sum + at + i, values[k]);
      });
    }
    float own = 0.0F;
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t) {
      for (const float value : values[k].of) own += value;
    });
    const float mean = sums.of(own) / width;
    float squares = 0.0F;
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t) {
      for (const float value : values[k].of) squares += (value - mean) * (value - mean);
    });
    const float deviation = 1.0F / sqrtf(sums.of(squares) / width + rows.eps);
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t i) {
      const auto scale = loaded<kAtOnce>(weight + i);
      const auto shift = loaded<kAtOnce>(bias + i);
      Elements<T, kAtOnce> made;
      for (std::size_t e = 0; e < kAtOnce; ++e)
        made.of[e] = from_float<T>(normed_of(values[k].of[e], mean, deviation, scale.of[e], shift.of[e]));
      store(normed + at + i, made);
    });
    if (columns == 0 || threadIdx.x % Shape::kThreadsOfRow != 0) continue;
    means[r] = mean;
    deviations[r] = deviation;
  }
}

/// What the block's threads have of a gradient [width], summed over the rows that they had side by side.
template <class Shape, class Values>
__device__ void store_partial(float* partial, std::size_t width, const Values (&own)[Shape::kChunks]) {
  if constexpr (Shape::kRows == 1) {
    Shape::over_chunks(width, [&](std::size_t k, std::size_t i) { store(partial + i, own[k]); });
  } else {
    struct Memory {
      Values of[Shape::kChunks][Shape::kRows][Shape::kThreadsOfRow];
    };
    auto& memory = shared_memory<Memory>().of;
    __syncthreads();  // an earlier gradient has been read
#pragma unroll
    for (std::size_t k = 0; k < Shape::kChunks; ++k)
      memory[k][Shape::row_of_thread()][threadIdx.x % Shape::kThreadsOfRow] = own[k];
    __syncthreads();
    for (std::size_t i = threadIdx.x; i < Shape::kChunks * Shape::kThreadsOfRow; i += kThreads) {
      if (i * Shape::kAtOnce >= width) break;
      const auto& of_rows = memory[i / Shape::kThreadsOfRow];
      Values sum = of_rows[0][i % Shape::kThreadsOfRow];
      for (unsigned row = 1; row < Shape::kRows; ++row)
        for (std::size_t e = 0; e < Shape::kAtOnce; ++e)
          sum.of[e] += of_rows[row][i % Shape::kThreadsOfRow].of[e];
      store(partial + i * Shape::kAtOnce, sum);
    }
  }
}

/// A thread adds up the gradients of weight and bias in registers: it has the same columns in each row.
template <class Shape, class T>
__global__ void __launch_bounds__(kThreads)
    residual_norm_gradient_kernel(float* gradient, T* of_branch, float* partial, const float* passed,
                                  const T* of_normed, const float* sum, const float* weight,
                                  const float* means, const float* deviations, NormRows rows) {
  constexpr std::size_t kAtOnce = Shape::kAtOnce;
  using Values = Elements<float, kAtOnce>;
  const auto width = static_cast<float>(rows.width);
  RowSums<Shape, TwoSums> sums;
  Values of_weight[Shape::kChunks]{};
  Values of_bias[Shape::kChunks]{};
  for (std::size_t first = std::size_t{blockIdx.x} * Shape::kRows; first < rows.rows;
       first += std::size_t{gridDim.x} * Shape::kRows) {
    const std::size_t r = first + Shape::row_of_thread();
    const std::size_t columns = r < rows.rows ? rows.width : 0;
    const std::size_t at = r * rows.width;
    const float mean = columns > 0 ? means[r] : 0.0F;
    const float deviation = columns > 0 ? deviations[r] : 0.0F;
    Values units[Shape::kChunks];
    Elements<T, kAtOnce> above[Shape::kChunks];
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t i) {
      units[k] = loaded<kAtOnce>(sum + at + i);
      above[k] = loaded<kAtOnce>(of_normed + at + i);
    });
    TwoSums own{0.0F, 0.0F};
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t i) {
      const auto scale = loaded<kAtOnce>(weight + i);
      for (std::size_t e = 0; e < kAtOnce; ++e) {
        const float over = to_float(above[k].of[e]);
        const float unit = (units[k].of[e] - mean) * deviation;
        units[k].of[e] = unit;
        of_weight[k].of[e] += over * unit;
        of_bias[k].of[e] += over;
        own.first += over * scale.of[e];
        own.second += over * scale.of[e] * unit;
      }
    });
    const TwoSums row = sums.of(own);
    const float mean_scaled = row.first / width;
    const float mean_product = row.second / width;
    Shape::over_chunks(columns, [&](std::size_t k, std::size_t i) {
      const auto scale = loaded<kAtOnce>(weight + i);
      Values made{};
      if (passed != nullptr) made = loaded<kAtOnce>(passed + at + i);
      for (std::size_t e = 0; e < kAtOnce; ++e)
        made.of[e] += norm_gradient_of(to_float(above[k].of[e]) * scale.of[e], units[k].of[e], mean_scaled,
                                       mean_product, deviation);
      store(gradient + at + i, made);
      if (of_branch == nullptr) return;
      Elements<T, kAtOnce> rounded;
      for (std::size_t e = 0; e < kAtOnce; ++e) rounded.of[e] = from_float<T>(made.of[e]);
      store(of_branch + at + i, rounded);
    });
  }
  float* const of_block = partial + std::size_t{blockIdx.x} * 2 * rows.width;
  store_partial<Shape>(of_block, rows.width, of_weight);
  store_partial<Shape>(of_block + rows.width, rows.width, of_bias);
}

/// Calls `call` with the shape for rows of `width`: as few warps as have the gradient's sums in their
/// registers. `aligned`: all rows begin at a whole vector.
template <class Call>
void with_row_shape(std::size_t width, bool aligned, const Call& call) {
  static_assert(RowShape<4, 6, 8>::kWidest == FusedKernels::kWidestNorm);
  static_assert(RowShape<1, 24, 8>::kWidest == FusedKernels::kWidestNorm);
  require(width <= FusedKernels::kWidestNorm, "so wide a row is not normed by a fused kernel",
          {.subject = "residual_norm", .advice = "leave out --kernels fused"});
  if (!aligned && width <= RowShape<1, 8, 1>::kWidest) return call(RowShape<1, 8, 1>());
  if (!aligned) return call(RowShape<1, 24, 8>());
  if (width <= RowShape<4, 2, 1>::kWidest) return call(RowShape<4, 2, 1>());
  if (width <= RowShape<4, 6, 1>::kWidest) return call(RowShape<4, 6, 1>());
  if (width <= RowShape<4, 4, 2>::kWidest) return call(RowShape<4, 4, 2>());
  if (width <= RowShape<4, 4, 4>::kWidest) return call(RowShape<4, 4, 4>());
  call(RowShape<4, 6, 8>());
}

bool has_whole_vectors(const NormRows& rows, std::initializer_list<const void*> pointers) {
  return rows.width % (kVectorBytes / sizeof(float)) == 0 && are_aligned(pointers);
}

}  // namespace

void residual_norm_on_gpu(float* sum, void* normed, Element type, float* means, float* deviations,
                          const float* input, const void* branch, Element branch_type, const float* weight,
                          const float* bias, const NormRows& rows, cudaStream_t stream) {
  if (rows.rows == 0 || rows.width == 0) return;
  const bool aligned = has_whole_vectors(rows, {sum, normed, input, branch, weight, bias});
  with_row_shape(rows.width, aligned, [&]<class Shape>(Shape) {
    const unsigned blocks = blocks_for((rows.rows + Shape::kRows - 1) / Shape::kRows);
    with_element_type(type, [&]<class T>(T*) {
      with_element_type(branch_type, [&]<class Branch>(Branch*) {
        launch(residual_norm_kernel<Shape, T, Branch>, blocks, kThreads, stream, sum, static_cast<T*>(normed),
               means, deviations, input, static_cast<const Branch*>(branch), weight, bias, rows);
      });
    });
  });
  check_launch("residual_norm");
}

void residual_norm_gradient_on_gpu(const NormGradients& to, const float* passed, const void* of_normed,
                                   Element type, const float* sum, const float* weight, const float* means,
                                   const float* deviations, const NormRows& rows, cudaStream_t stream) {
  if (rows.width == 0) return;
  const bool aligned =
      has_whole_vectors(rows, {to.of_sum, to.of_branch, to.partial, passed, of_normed, sum, weight});
  with_row_shape(rows.width, aligned, [&]<class Shape>(Shape) {
    with_element_type(type, [&]<class T>(T*) {
      launch(residual_norm_gradient_kernel<Shape, T>, static_cast<unsigned>(FusedKernels::kPartialRows),
             kThreads, stream, to.of_sum, static_cast<T*>(to.of_branch), to.partial, passed,
             static_cast<const T*>(of_normed), sum, weight, means, deviations, rows);
    });
  });
  join_parts_on_gpu({to.of_weight, to.of_bias}, to.partial, FusedKernels::kPartialRows, rows.width, stream);
  check_launch("residual_norm_gradient");
}

}  // namespace dtrain::kernels
