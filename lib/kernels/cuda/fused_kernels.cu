#include "kernels/cuda/fused_kernels.hpp"

#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "core/error.hpp"
#include "kernels/cuda/batch_norm.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/residual_norm.hpp"
#include "kernels/cuda/shared_memory.hpp"

namespace dtrain::kernels {
namespace {

cudaStream_t stream_of(FusedKernels::Stream stream) { return static_cast<cudaStream_t>(stream); }

/// What all threads of the block have, joined in an order that is always the same; every thread gets it.
template <class Sum>
__device__ Sum join_over_block(const Sum& own) {
  struct Memory {
    Sum of[kThreads];
  };
  auto* const sums = shared_memory<Memory>().of;
  __syncthreads();  // an earlier result has been read
  sums[threadIdx.x] = own;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x].join(sums[threadIdx.x + half]);
  }
  __syncthreads();
  return sums[0];
}

template <class T>
__device__ LogSum log_sum_of(const T* row, std::size_t words, bool aligned) {
  constexpr std::size_t kAtOnce = Vector<T>::kElements;
  LogSum own;
  const std::size_t whole = aligned ? words / kAtOnce : 0;
  const auto* const vectors = reinterpret_cast<const Vector<T>*>(row);
  for (std::size_t v = threadIdx.x; v < whole; v += kThreads) {
    const Vector<T> loaded = vectors[v];
    for (std::size_t k = 0; k < kAtOnce; ++k) own.add(to_float(loaded.of[k]));
  }
  for (std::size_t i = whole * kAtOnce + threadIdx.x; i < words; i += kThreads) own.add(to_float(row[i]));
  return own;
}

template <class T>
__global__ void token_loss_kernel(float* losses, float* log_sums, const T* logits,
                                  const std::int64_t* targets, TokenRows rows, bool aligned) {
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    const T* const row = logits + r * rows.stride;
    const LogSum sum = join_over_block(log_sum_of(row, rows.words, aligned));
    if (threadIdx.x != 0) continue;
    log_sums[r] = sum.value();
    losses[r] = sum.value() - to_float(row[targets[r]]);
  }
}

template <class T>
__global__ void token_loss_gradient_kernel(T* logits, const float* log_sums, const std::int64_t* targets,
                                           const float* factor, TokenRows rows, bool aligned) {
  constexpr std::size_t kAtOnce = Vector<T>::kElements;
  const std::size_t whole = aligned ? rows.stride / kAtOnce : 0;
  const float scale = *factor;
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    T* const row = logits + r * rows.stride;
    const auto target = static_cast<std::size_t>(targets[r]);
    const float log_sum = log_sums[r];
    const auto gradient = [&](std::size_t i, T logit) {
      if (i >= rows.words) return from_float<T>(0.0F);
      return from_float<T>(token_loss_gradient_of(to_float(logit), log_sum, i == target, scale));
    };
    auto* const vectors = reinterpret_cast<Vector<T>*>(row);
    for (std::size_t v = threadIdx.x; v < whole; v += kThreads) {
      Vector<T> values = vectors[v];
      for (std::size_t k = 0; k < kAtOnce; ++k) values.of[k] = gradient(v * kAtOnce + k, values.of[k]);
      store(row + v * kAtOnce, values);
    }
    for (std::size_t i = whole * kAtOnce + threadIdx.x; i < rows.stride; i += kThreads) {
      row[i] = gradient(i, row[i]);
    }
  }
}

__global__ void decide_kernel(UpdateDecision* decision, const SumOfSquares* squares, double clip,
                              const UpdateInputs* inputs) {
  decide_on(*decision, squares->sum, squares->non_finite, clip, *inputs);
}

/// A block has a chunk; it takes further ones where the blocks do not suffice.
template <class Copy>
__global__ void adam_kernel(AdamMemory memory, AdamRule rule, const UpdateDecision* decision) {
  if (decision->applies == 0) return;
  const float scale = decision->scale;
  AdamStep& step = shared_memory<AdamStep>();  // powers in double: one thread's work
  if (threadIdx.x == 0) step = adam_step_of(rule, *decision);
  __syncthreads();
  auto* const copy = static_cast<Copy*>(memory.copy);
  for (std::size_t c = blockIdx.x; c < memory.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = memory.chunks[c];
    float* const values = memory.values + chunk.begin;
    float* const first = memory.first + chunk.place;
    float* const second = memory.second + chunk.place;
    const float* const gradient = memory.gradient + chunk.begin;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < chunk.size; i += kThreads) {
      const float value =
          adam_of(values[i], first[i], second[i], gradient[i] * scale, rule, step, chunk.weight_decay);
      values[i] = value;
      if (copy != nullptr) copy[chunk.begin + i] = from_float<Copy>(value);
    }
  }
}

class CudaFusedKernels final : public FusedKernels {
 public:
  void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                  const std::int64_t* targets, const TokenRows& rows, Stream stream) const override {
    if (rows.rows == 0) return;
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      launch(token_loss_kernel<T>, blocks_for(rows.rows), kThreads, stream_of(stream), losses, log_sums,
             static_cast<const T*>(logits), targets, rows, has_whole_vectors<T>(logits, rows));
    });
    check_launch("token_loss");
  }

  void token_loss_gradient(void* logits, Element type, const float* log_sums, const std::int64_t* targets,
                           const float* factor, const TokenRows& rows, Stream stream) const override {
    if (rows.rows == 0) return;
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      launch(token_loss_gradient_kernel<T>, blocks_for(rows.rows), kThreads, stream_of(stream),
             static_cast<T*>(logits), log_sums, targets, factor, rows, has_whole_vectors<T>(logits, rows));
    });
    check_launch("token_loss_gradient");
  }

  void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                     const float* input, const void* branch, Element branch_type, const float* weight,
                     const float* bias, const NormRows& rows, Stream stream) const override {
    residual_norm_on_gpu(sum, normed, type, means, deviations, input, branch, branch_type, weight, bias, rows,
                         stream_of(stream));
  }

  void residual_norm_gradient(float* gradient, float* partial, const float* passed, const void* of_normed,
                              Element type, const float* sum, const float* weight, const float* means,
                              const float* deviations, const NormRows& rows, Stream stream) const override {
    residual_norm_gradient_on_gpu(gradient, partial, passed, of_normed, type, sum, weight, means, deviations,
                                  rows, stream_of(stream));
  }

  void batch_norm(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                  const StepMoments& step, Stream stream) const override {
    batch_norm_on_gpu(output, x, residual, norm, step, stream_of(stream));
  }

  void batch_norm_gradient(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                           Stream stream) const override {
    batch_norm_gradient_on_gpu(gradient, norm, stream_of(stream));
  }

  void decide(UpdateDecision* decision, const SumOfSquares* squares, double clip, const UpdateInputs* inputs,
              Stream stream) const override {
    launch(decide_kernel, 1, 1, stream_of(stream), decision, squares, clip, inputs);
    check_launch("decide");
  }

  void adam(const AdamMemory& memory, const AdamRule& rule, const UpdateDecision* decision,
            Stream stream) const override {
    if (memory.chunk_count == 0) return;
    with_element_type(memory.copy_type, [&](auto* of_copy) {
      using Copy = std::remove_pointer_t<decltype(of_copy)>;
      launch(adam_kernel<Copy>, blocks_for(memory.chunk_count), kThreads, stream_of(stream), memory, rule,
             decision);
    });
    check_launch("adam");
  }

 private:
  template <class T>
  static bool has_whole_vectors(const void* logits, const TokenRows& rows) {
    return are_aligned({logits}) && rows.stride % Vector<T>::kElements == 0;
  }
};

}  // namespace

void check_launch(const char* kernel) {
  const cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess) return;
  throw Error(
      cudaGetErrorString(code),
      {.subject = std::string("kernel ") + kernel,
       .advice =
           "look at nvidia-smi and the kernel log for errors of the GPU, or leave out --kernels fused"});
}

const FusedKernels& fused_kernels_of_gpu() {
  static const CudaFusedKernels kernels;
  return kernels;
}

}  // namespace dtrain::kernels
