#include "kernels/cuda/fused_kernels.hpp"

#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "core/error.hpp"
#include "kernels/cuda/batch_norm.hpp"
#include "kernels/cuda/bias_gradient.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/max_pool.hpp"
#include "kernels/cuda/residual_norm.hpp"
#include "kernels/cuda/shared_memory.hpp"
#include "kernels/cuda/token_loss.hpp"

namespace dtrain::kernels {
namespace {

cudaStream_t stream_of(FusedKernels::Stream stream) { return static_cast<cudaStream_t>(stream); }

__global__ void decide_kernel(UpdateDecision* decision, const SumOfSquares* squares, double clip,
                              const UpdateInputs* inputs) {
  decide_on(*decision, squares->sum, squares->non_finite, clip, *inputs);
}

/// Where the runs of a chunk begin.
struct AdamPlaces {
  float* values;
  float* first;
  float* second;
  const float* gradient;
};

/// Updates `n` neighbours from `i` on, read and written together.
template <std::size_t n, class Copy>
__device__ void update(const AdamPlaces& at, Copy* copy, std::int32_t i, float scale, const AdamRule& rule,
                       const AdamStep& step, float weight_decay) {
  auto values = loaded<n>(at.values + i);
  auto first = loaded<n>(at.first + i);
  auto second = loaded<n>(at.second + i);
  const auto gradient = loaded<n>(at.gradient + i);
  Elements<Copy, n> copied;
  for (std::size_t e = 0; e < n; ++e) {
    values.of[e] =
        adam_of(values.of[e], first.of[e], second.of[e], gradient.of[e] * scale, rule, step, weight_decay);
    copied.of[e] = from_float<Copy>(values.of[e]);
  }
  store(at.values + i, values);
  store(at.first + i, first);
  store(at.second + i, second);
  if (copy != nullptr) store(copy + i, copied);
}

/// A block has a chunk; it takes further ones where the blocks do not suffice. `aligned`: all memory begins
/// at a whole vector.
template <class Copy>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(AdamMemory memory, AdamRule rule, const UpdateDecision* decision, bool aligned) {
  constexpr std::int32_t kAtOnce = Vector<float>::kElements;
  if (decision->applies == 0) return;
  const float scale = decision->scale;
  AdamStep& step = shared_memory<AdamStep>();  // powers in double: one thread's work
  if (threadIdx.x == 0) step = adam_step_of(rule, *decision);
  __syncthreads();
  for (std::size_t c = blockIdx.x; c < memory.chunk_count; c += gridDim.x) {
    const UpdateChunk chunk = memory.chunks[c];
    const AdamPlaces at{memory.values + chunk.begin, memory.first + chunk.place, memory.second + chunk.place,
                        memory.gradient + chunk.begin};
    auto* const copy = memory.copy != nullptr ? static_cast<Copy*>(memory.copy) + chunk.begin : nullptr;
    const bool whole = aligned && chunk.begin % kAtOnce == 0 && chunk.place % kAtOnce == 0;
    const std::int32_t in_vectors = whole ? chunk.size / kAtOnce * kAtOnce : 0;
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
    for (std::int32_t i = thread * kAtOnce; i < in_vectors; i += kThreads * kAtOnce)
      update<kAtOnce>(at, copy, i, scale, rule, step, chunk.weight_decay);
    for (std::int32_t i = in_vectors + thread; i < chunk.size; i += kThreads)
      update<1>(at, copy, i, scale, rule, step, chunk.weight_decay);
  }
}

class CudaFusedKernels final : public FusedKernels {
 public:
  void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                  const std::int64_t* targets, const TokenRows& rows, Stream stream) const override {
    token_loss_on_gpu(losses, log_sums, logits, type, targets, rows, stream_of(stream));
  }

  void token_loss_gradient(void* logits, Element type, const float* log_sums, const std::int64_t* targets,
                           const float* factor, const TokenRows& rows, Stream stream) const override {
    token_loss_gradient_on_gpu(logits, type, log_sums, targets, factor, rows, stream_of(stream));
  }

  void token_loss_with_gradient(float* losses, void* logits, Element type, const std::int64_t* targets,
                                const TokenRows& rows, Stream stream) const override {
    token_loss_with_gradient_on_gpu(losses, logits, type, targets, rows, stream_of(stream));
  }

  void column_sums(float* sums, float* partial, const void* values, Element type, std::size_t rows,
                   std::size_t columns, Stream stream) const override {
    column_sums_on_gpu(sums, partial, values, type, rows, columns, stream_of(stream));
  }

  void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                     const float* input, const void* branch, Element branch_type, const float* weight,
                     const float* bias, const NormRows& rows, Stream stream) const override {
    residual_norm_on_gpu(sum, normed, type, means, deviations, input, branch, branch_type, weight, bias, rows,
                         stream_of(stream));
  }

  void residual_norm_gradient(const NormGradients& to, const float* passed, const void* of_normed,
                              Element type, const float* sum, const float* weight, const float* means,
                              const float* deviations, const NormRows& rows, Stream stream) const override {
    residual_norm_gradient_on_gpu(to, passed, of_normed, type, sum, weight, means, deviations, rows,
                                  stream_of(stream));
  }

  void batch_norm(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                  const StepMoments& step, Stream stream) const override {
    batch_norm_on_gpu(output, x, residual, norm, step, stream_of(stream));
  }

  void batch_norm_gradient(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                           Stream stream) const override {
    batch_norm_gradient_on_gpu(gradient, norm, stream_of(stream));
  }

  void max_pool(void* out, std::uint8_t* which, const void* input, Element type, const PoolSize& size,
                std::size_t inner, Stream stream) const override {
    max_pool_on_gpu(out, which, input, type, size, inner, stream_of(stream));
  }

  void max_pool_gradient(void* input_gradient, const void* gradient, const std::uint8_t* which, Element type,
                         const PoolSize& size, std::size_t inner, Stream stream) const override {
    max_pool_gradient_on_gpu(input_gradient, gradient, which, type, size, inner, stream_of(stream));
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
             decision,
             are_aligned({memory.values, memory.first, memory.second, memory.gradient, memory.copy}));
    });
    check_launch("adam");
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
