// The loss of a classifier of words, a row of logits for each token. A block has a row. Where the loss and
// its gradient come at once, the second pass over a row finds it in the cache: 3.3 GB travel for 16,384
// tokens of gpt2 in bf16, and not 5. Apart they took 0.91 and 0.93 ms there (H200, 2026-11-26), and as one,
// 2.17: the instructions of a logit, more than 22 by the disassembly, counted for more than its bytes, which
// predict 0.77. With ten of them it takes 1.53 (2026-11-27). A row kept in the multiprocessor's memory
// instead took 2.17; why is not known.
#include "kernels/cuda/token_loss.hpp"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"

namespace dtrain::kernels {
namespace {

constexpr unsigned kRowThreads = 512;       // of a block
constexpr std::size_t kVectorsAtOnce = 4;   // that a thread reads before it uses the first
constexpr std::size_t kCached = 28U << 20;  // bytes of rows that stay in the cache between two passes

/// What all threads of the block have, joined in an order that is always the same; every thread gets it.
__device__ LogSum join_over_block(const LogSum& own) {
  struct Memory {
    LogSum of[kRowThreads];
  };
  auto* const sums = shared_memory<Memory>().of;
  __syncthreads();  // an earlier result has been read
  sums[threadIdx.x] = own;
  for (unsigned half = kRowThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x].join(sums[threadIdx.x + half]);
  }
  __syncthreads();
  return sums[0];
}

/// As exact as a logit of type T.
template <class T>
__device__ float exponential(float x) {
  if constexpr (std::is_same_v<T, float>) return expf(x);
  return __expf(x);
}

/// Adds neighbours together, with one exponential each.
template <class T>
__device__ void add(LogSum& own, const Vector<T>& values) {
  constexpr std::size_t kCount = Vector<T>::kElements;
  float x[kCount];
  float largest = own.largest;
  for (std::size_t e = 0; e < kCount; ++e) {
    x[e] = to_float(values.of[e]);
    largest = fmaxf(largest, x[e]);
  }
  if (largest == -INFINITY) {
    for (const float value : x)
      if (value != -INFINITY) own.sum += value;  // not a number
    return;
  }
  float more = 0.0F;
  for (const float value : x) more += exponential<T>(value - largest);
  own.sum = own.sum * exponential<T>(own.largest - largest) + more;
  own.largest = largest;
}

/// Calls `work(place, vector)` for the thread's vectors of the first `count` of `row`, then `rest(place)` for
/// its elements behind them, up to `end`.
template <class T, class Work, class Rest>
__device__ void over_row(const T* row, std::size_t count, std::size_t end, const Work& work,
                         const Rest& rest) {
  constexpr std::size_t kAtOnce = Vector<T>::kElements;
  const auto* const vectors = reinterpret_cast<const Vector<T>*>(row);
  for (std::size_t first = threadIdx.x; first < count; first += kVectorsAtOnce * kRowThreads) {
    Vector<T> read[kVectorsAtOnce];
#pragma unroll
    for (std::size_t k = 0; k < kVectorsAtOnce; ++k)
      if (first + k * kRowThreads < count) read[k] = vectors[first + k * kRowThreads];
#pragma unroll
    for (std::size_t k = 0; k < kVectorsAtOnce; ++k)
      if (first + k * kRowThreads < count) work((first + k * kRowThreads) * kAtOnce, read[k]);
  }
  for (std::size_t i = count * kAtOnce + threadIdx.x; i < end; i += kRowThreads) rest(i);
}

template <class T>
__device__ LogSum log_sum_of(const T* row, std::size_t words, bool aligned) {
  LogSum own;
  over_row(
      row, aligned ? words / Vector<T>::kElements : 0, words,
      [&](std::size_t, const Vector<T>& values) { add<T>(own, values); },
      [&](std::size_t i) { own.add(to_float(row[i])); });
  return join_over_block(own);
}

template <class T>
__device__ void write_gradient(T* row, const TokenRows& rows, float log_sum, std::size_t target, float factor,
                               bool aligned) {
  constexpr std::size_t kAtOnce = Vector<T>::kElements;
  const auto share_of = [&](T logit) { return exponential<T>(to_float(logit) - log_sum); };
  const auto gradient = [&](std::size_t i, T logit) {
    if (i >= rows.words) return from_float<T>(0.0F);
    return from_float<T>(token_loss_gradient_of(share_of(logit), i == target, factor));
  };
  over_row(
      row, aligned ? rows.stride / Vector<T>::kElements : 0, rows.stride,
      [&](std::size_t i, Vector<T> values) {
        // All but two of a row have words alone, and not the wanted one.
        const bool plain = i + kAtOnce <= rows.words && target - i >= kAtOnce;
        if (plain) {
          for (std::size_t e = 0; e < kAtOnce; ++e)
            values.of[e] = from_float<T>(token_loss_gradient_of(share_of(values.of[e]), false, factor));
        } else {
          for (std::size_t e = 0; e < kAtOnce; ++e) values.of[e] = gradient(i + e, values.of[e]);
        }
        store(row + i, values);
      },
      [&](std::size_t i) { row[i] = gradient(i, row[i]); });
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    token_loss_kernel(float* losses, float* log_sums, const T* logits, const std::int64_t* targets,
                      TokenRows rows, bool aligned) {
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    const T* const row = logits + r * rows.stride;
    const LogSum sum = log_sum_of(row, rows.words, aligned);
    if (threadIdx.x != 0) continue;
    log_sums[r] = sum.value();
    losses[r] = sum.value() - to_float(row[targets[r]]);
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    token_loss_gradient_kernel(T* logits, const float* log_sums, const std::int64_t* targets,
                               const float* factor, TokenRows rows, bool aligned) {
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    write_gradient(logits + r * rows.stride, rows, log_sums[r], static_cast<std::size_t>(targets[r]), *factor,
                   aligned);
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    token_loss_with_gradient_kernel(float* losses, T* logits, const std::int64_t* targets, TokenRows rows,
                                    bool aligned) {
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    T* const row = logits + r * rows.stride;
    const auto target = static_cast<std::size_t>(targets[r]);
    const float wanted = to_float(row[target]);  // all threads have read it at the barriers of the sum
    const float log_sum = log_sum_of(row, rows.words, aligned).value();
    if (threadIdx.x == 0) losses[r] = log_sum - wanted;
    write_gradient(row, rows, log_sum, target, 1.0F, aligned);
  }
}

template <class T>
bool has_whole_vectors(const void* logits, const TokenRows& rows) {
  return are_aligned({logits}) && rows.stride % Vector<T>::kElements == 0;
}

/// So many that what they work on at once stays in the cache.
unsigned blocks_in_cache(const TokenRows& rows, std::size_t element_bytes) {
  const std::size_t cached = kCached / std::max<std::size_t>(rows.stride * element_bytes, 1);
  return std::min(blocks_for(rows.rows), blocks_for(cached));
}

}  // namespace

void token_loss_on_gpu(float* losses, float* log_sums, const void* logits, Element type,
                       const std::int64_t* targets, const TokenRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return;
  with_element_type(type, [&]<class T>(T*) {
    launch(token_loss_kernel<T>, blocks_for(rows.rows), kRowThreads, stream, losses, log_sums,
           static_cast<const T*>(logits), targets, rows, has_whole_vectors<T>(logits, rows));
  });
  check_launch("token_loss");
}

void token_loss_gradient_on_gpu(void* logits, Element type, const float* log_sums,
                                const std::int64_t* targets, const float* factor, const TokenRows& rows,
                                cudaStream_t stream) {
  if (rows.rows == 0) return;
  with_element_type(type, [&]<class T>(T*) {
    launch(token_loss_gradient_kernel<T>, blocks_for(rows.rows), kRowThreads, stream, static_cast<T*>(logits),
           log_sums, targets, factor, rows, has_whole_vectors<T>(logits, rows));
  });
  check_launch("token_loss_gradient");
}

void token_loss_with_gradient_on_gpu(float* losses, void* logits, Element type, const std::int64_t* targets,
                                     const TokenRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return;
  with_element_type(type, [&]<class T>(T*) {
    launch(token_loss_with_gradient_kernel<T>, blocks_in_cache(rows, sizeof(T)), kRowThreads, stream, losses,
           static_cast<T*>(logits), targets, rows, has_whole_vectors<T>(logits, rows));
  });
  check_launch("token_loss_with_gradient");
}

}  // namespace dtrain::kernels
