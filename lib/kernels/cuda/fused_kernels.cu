#include "kernels/cuda/fused_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "core/error.hpp"

namespace dtrain::kernels {
namespace {

constexpr int kThreads = 256;  // a power of two: halves meet in join_over_block()
constexpr std::size_t kMostBlocks = 4096;

cudaStream_t stream_of(FusedKernels::Stream stream) { return static_cast<cudaStream_t>(stream); }

void check_launch(const char* kernel) {
  const cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess) return;
  throw Error(
      cudaGetErrorString(code),
      {.subject = std::string("kernel ") + kernel,
       .advice =
           "look at nvidia-smi and the kernel log for errors of the GPU, or leave out --kernels fused"});
}

/// A block has a row; it takes further ones where the blocks do not suffice.
unsigned blocks_for(std::size_t rows) {
  return static_cast<unsigned>(std::clamp<std::size_t>(rows, 1, kMostBlocks));
}

/// 16 bytes at once.
template <class T>
struct alignas(16) Vector {
  static constexpr std::size_t kElements = 16 / sizeof(T);
  T of[kElements];
};

/// What all threads of the block have, joined in an order that is always the same; every thread gets it.
template <class Sum>
__device__ Sum join_over_block(const Sum& own) {
  __shared__ alignas(Sum) unsigned char memory[kThreads * sizeof(Sum)];  // bytes: it may not initialise
  auto* const sums = reinterpret_cast<Sum*>(memory);
  __syncthreads();  // an earlier result has been read
  sums[threadIdx.x] = own;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x].join(sums[threadIdx.x + half]);
  }
  __syncthreads();
  return sums[0];
}

struct TwoSums {
  float first;
  float second;
  __device__ void join(const TwoSums& other) {
    first += other.first;
    second += other.second;
  }
};

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
      vectors[v] = values;
    }
    for (std::size_t i = whole * kAtOnce + threadIdx.x; i < rows.stride; i += kThreads) {
      row[i] = gradient(i, row[i]);
    }
  }
}

/// `branch` null: `sum` is not written, and the input is what is normed.
template <class T, class Branch>
__global__ void residual_norm_kernel(float* sum, T* normed, float* means, float* deviations,
                                     const float* input, const Branch* branch, const float* weight,
                                     const float* bias, NormRows rows) {
  const auto width = static_cast<float>(rows.width);
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    const std::size_t at = r * rows.width;
    const float* const row = branch != nullptr ? sum + at : input + at;
    TwoSums own{0.0F, 0.0F};
    for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
      const float value = branch != nullptr ? input[at + i] + to_float(branch[at + i]) : input[at + i];
      if (branch != nullptr) sum[at + i] = value;  // which this thread alone reads again
      own.first += value;
    }
    const float mean = join_over_block(own).first / width;
    TwoSums squares{0.0F, 0.0F};
    for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
      squares.first += (row[i] - mean) * (row[i] - mean);
    }
    const float deviation = 1.0F / sqrtf(join_over_block(squares).first / width + rows.eps);
    for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
      normed[at + i] = from_float<T>(normed_of(row[i], mean, deviation, weight[i], bias[i]));
    }
    if (threadIdx.x != 0) continue;
    means[r] = mean;
    deviations[r] = deviation;
  }
}

/// A block adds up the gradients of weight and bias of its rows in shared memory [2, width]; a thread has the
/// same columns in each row.
template <class T>
__global__ void residual_norm_gradient_kernel(float* gradient, float* partial, const float* passed,
                                              const T* of_normed, const float* sum, const float* weight,
                                              const float* means, const float* deviations, NormRows rows) {
  extern __shared__ float own_partial[];
  const auto width = static_cast<float>(rows.width);
  for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
    own_partial[i] = 0.0F;
    own_partial[rows.width + i] = 0.0F;
  }
  for (std::size_t r = blockIdx.x; r < rows.rows; r += gridDim.x) {
    const std::size_t at = r * rows.width;
    const float mean = means[r];
    const float deviation = deviations[r];
    TwoSums own{0.0F, 0.0F};
    for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
      const float above = to_float(of_normed[at + i]);
      const float unit = (sum[at + i] - mean) * deviation;
      own_partial[i] += above * unit;
      own_partial[rows.width + i] += above;
      own.first += above * weight[i];
      own.second += above * weight[i] * unit;
    }
    const TwoSums row = join_over_block(own);
    for (std::size_t i = threadIdx.x; i < rows.width; i += kThreads) {
      const float unit = (sum[at + i] - mean) * deviation;
      const float through = norm_gradient_of(to_float(of_normed[at + i]) * weight[i], unit, row.first / width,
                                             row.second / width, deviation);
      gradient[at + i] = passed != nullptr ? passed[at + i] + through : through;
    }
  }
  float* const of_block = partial + std::size_t{blockIdx.x} * 2 * rows.width;
  for (std::size_t i = threadIdx.x; i < 2 * rows.width; i += kThreads) of_block[i] = own_partial[i];
}

constexpr unsigned kChannelTile = 32;  // channels of a block: threads side by side read them together
constexpr unsigned kRowLanes = kThreads / kChannelTile;

/// Two sums over the rows of what `term` gives for a place, of kChannelTile channels; block y has every
/// gridDim.y-th row. The parts add up to the sums in an order that is always the same.
template <class Term>
__device__ void sum_rows(double* partial, std::size_t rows, std::size_t channels, const Term& term) {
  __shared__ double sums[2][kRowLanes][kChannelTile];
  const std::size_t c = std::size_t{blockIdx.x} * kChannelTile + threadIdx.x;
  double first = 0.0;
  double second = 0.0;
  if (c < channels) {
    for (std::size_t r = std::size_t{blockIdx.y} * kRowLanes + threadIdx.y; r < rows;
         r += std::size_t{gridDim.y} * kRowLanes) {
      term(first, second, r * channels + c, c);
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = first;
  sums[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y != 0 || c >= channels) return;
  for (unsigned lane = 1; lane < kRowLanes; ++lane) {
    first += sums[0][lane][threadIdx.x];
    second += sums[1][lane][threadIdx.x];
  }
  partial[std::size_t{blockIdx.y} * 2 * channels + c] = first;
  partial[(std::size_t{blockIdx.y} * 2 + 1) * channels + c] = second;
}

__device__ double sum_of_parts(const double* partial, std::size_t channels, std::size_t c, unsigned which) {
  double sum = 0.0;
  for (std::size_t part = 0; part < FusedKernels::kStatisticParts; ++part)
    sum += partial[(part * 2 + which) * channels + c];
  return sum;
}

template <class T>
__global__ void channel_moments_kernel(const T* x, ChannelNorm norm) {
  const std::size_t own = std::size_t{blockIdx.x} * kChannelTile + threadIdx.x;
  const double centre = own < norm.channels ? channel_centre(x + own, norm.rows, norm.channels) : 0.0;
  sum_rows(norm.partial, norm.rows, norm.channels,
           [=](double& first, double& second, std::size_t i, std::size_t) {
             const double deviation = static_cast<double>(to_float(x[i])) - centre;
             first += deviation;
             second += deviation * deviation;
           });
}

/// A thread has a channel.
template <class T>
__global__ void finish_moments_kernel(const T* x, ChannelNorm norm, StepMoments step) {
  const std::size_t c = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= norm.channels) return;
  const auto rows = static_cast<double>(norm.rows);
  const double offset = sum_of_parts(norm.partial, norm.channels, c, 0) / rows;
  const double squares = sum_of_parts(norm.partial, norm.channels, c, 1) / rows;
  const double variance = fmax(squares - offset * offset, 0.0);
  const double mean = channel_centre(x + c, norm.rows, norm.channels) + offset;
  const auto of = channel_scale_of(mean, variance, norm.epsilon, norm.weight[c], norm.bias[c]);
  norm.mean[c] = mean;
  norm.inverse_deviation[c] = of.inverse_deviation;
  norm.scale[c] = of.scale;
  norm.shift[c] = of.shift;
  if (step.mean == nullptr) return;
  step.mean[c] += step.samples * mean;
  step.variance[c] += step.samples * variance * rows / (rows - 1.0);
}

/// Calls `work(values, i)` for kAtOnce elements from i on, all of them those of one row; the channels are a
/// multiple of kAtOnce.
template <std::size_t kAtOnce, class Work>
__device__ void over_elements(std::size_t count, const Work& work) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x * kAtOnce;
  for (std::size_t i = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * kAtOnce; i < count; i += step)
    work(i);
}

template <class T, std::size_t kAtOnce>
struct alignas(kAtOnce * sizeof(T)) Elements {
  T of[kAtOnce];
};

template <std::size_t kAtOnce, class T>
__device__ Elements<T, kAtOnce> loaded(const T* from) {
  return *reinterpret_cast<const Elements<T, kAtOnce>*>(from);
}
template <std::size_t kAtOnce, class T>
__device__ void store(T* to, const Elements<T, kAtOnce>& values) {
  *reinterpret_cast<Elements<T, kAtOnce>*>(to) = values;
}

template <std::size_t kAtOnce, class T>
__global__ void scale_channels_kernel(T* output, const T* x, const T* residual, ChannelNorm norm) {
  over_elements<kAtOnce>(norm.rows * norm.channels, [=](std::size_t i) {
    auto values = loaded<kAtOnce>(x + i);
    Elements<T, kAtOnce> beside{};
    if (residual != nullptr) beside = loaded<kAtOnce>(residual + i);
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const std::size_t c = (i + k) % norm.channels;
      const float added = residual != nullptr ? to_float(beside.of[k]) : 0.0F;
      values.of[k] =
          from_float<T>(scaled_of(to_float(values.of[k]), norm.scale[c], norm.shift[c], added, norm.relu));
    }
    store<kAtOnce>(output + i, values);
  });
}

template <class T>
__device__ float masked_at(const T& of_output, const T& x, const T* output, std::size_t c,
                           const ChannelNorm& norm) {
  const float y = output != nullptr ? to_float(*output)
                                    : scaled_of(to_float(x), norm.scale[c], norm.shift[c], 0.0F, false);
  return masked_of(to_float(of_output), y, norm.relu);
}

template <class T>
__global__ void channel_gradient_sums_kernel(const T* of_output, const T* x, const T* output,
                                             ChannelNorm norm) {
  sum_rows(norm.partial, norm.rows, norm.channels,
           [=](double& first, double& second, std::size_t i, std::size_t c) {
             const auto g = static_cast<double>(
                 masked_at(of_output[i], x[i], output != nullptr ? output + i : nullptr, c, norm));
             first += g;
             second += g * (static_cast<double>(to_float(x[i])) - norm.mean[c]);
           });
}

__global__ void finish_gradient_sums_kernel(ChannelNormGradient gradient, ChannelNorm norm) {
  const std::size_t c = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= norm.channels) return;
  const double sum = sum_of_parts(norm.partial, norm.channels, c, 0);
  const double product_sum = sum_of_parts(norm.partial, norm.channels, c, 1);
  gradient.of_weight[c] = static_cast<float>(product_sum * norm.inverse_deviation[c]);
  gradient.of_bias[c] = static_cast<float>(sum);
  const auto factors = channel_factors_of(sum, product_sum, static_cast<double>(norm.rows), norm.weight[c],
                                          norm.mean[c], norm.inverse_deviation[c]);
  gradient.factors[c] = factors.a;
  gradient.factors[norm.channels + c] = factors.b;
  gradient.factors[2 * norm.channels + c] = factors.c;
}

template <std::size_t kAtOnce, class T>
__global__ void channel_gradient_kernel(ChannelNormGradient gradient, ChannelNorm norm) {
  const T* const x = static_cast<const T*>(gradient.x);
  const T* const output = static_cast<const T*>(gradient.output);
  const T* const of_output = static_cast<const T*>(gradient.of_output);
  T* const of_x = static_cast<T*>(gradient.of_x);
  T* const of_residual = static_cast<T*>(gradient.of_residual);
  over_elements<kAtOnce>(norm.rows * norm.channels, [=](std::size_t i) {
    const auto values = loaded<kAtOnce>(x + i);
    const auto above = loaded<kAtOnce>(of_output + i);
    Elements<T, kAtOnce> seen{};
    if (output != nullptr) seen = loaded<kAtOnce>(output + i);
    Elements<T, kAtOnce> made;
    Elements<T, kAtOnce> passed;
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const std::size_t c = (i + k) % norm.channels;
      const float g =
          masked_at(above.of[k], values.of[k], output != nullptr ? &seen.of[k] : nullptr, c, norm);
      passed.of[k] = from_float<T>(g);
      made.of[k] = from_float<T>(g * gradient.factors[c] +
                                 (to_float(values.of[k]) * gradient.factors[norm.channels + c] +
                                  gradient.factors[2 * norm.channels + c]));
    }
    store<kAtOnce>(of_x + i, made);
    if (of_residual != nullptr) store<kAtOnce>(of_residual + i, passed);
  });
}

__global__ void decide_kernel(UpdateDecision* decision, const SumOfSquares* squares, double clip,
                              double weight) {
  decide_on(*decision, squares->sum, squares->non_finite, clip, weight);
}

template <class Copy>
__global__ void adam_kernel(float* values, float* first, float* second, const float* gradient, Copy* copy,
                            std::size_t n, AdamRule rule, const UpdateDecision* decision) {
  if (decision->applies == 0) return;
  const float scale = decision->scale;
  __shared__ AdamCorrections corrections;  // powers in double: one thread's work
  if (threadIdx.x == 0) corrections = corrections_of(rule, decision->count);
  __syncthreads();
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    const float value = adam_of(values[i], first[i], second[i], gradient[i] * scale, rule, corrections);
    values[i] = value;
    if (copy != nullptr) copy[i] = from_float<Copy>(value);
  }
}

class CudaFusedKernels final : public FusedKernels {
 public:
  void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                  const std::int64_t* targets, const TokenRows& rows, Stream stream) const override {
    if (rows.rows == 0) return;
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      token_loss_kernel<<<blocks_for(rows.rows), kThreads, 0, stream_of(stream)>>>(
          losses, log_sums, static_cast<const T*>(logits), targets, rows, are_aligned<T>(logits, rows));
    });
    check_launch("token_loss");
  }

  void token_loss_gradient(void* logits, Element type, const float* log_sums, const std::int64_t* targets,
                           const float* factor, const TokenRows& rows, Stream stream) const override {
    if (rows.rows == 0) return;
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      token_loss_gradient_kernel<<<blocks_for(rows.rows), kThreads, 0, stream_of(stream)>>>(
          static_cast<T*>(logits), log_sums, targets, factor, rows, are_aligned<T>(logits, rows));
    });
    check_launch("token_loss_gradient");
  }

  void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                     const float* input, const void* branch, Element branch_type, const float* weight,
                     const float* bias, const NormRows& rows, Stream stream) const override {
    if (rows.rows == 0) return;
    with_element_type(type, [&](auto* of_type) {
      with_element_type(branch_type, [&](auto* of_branch) {
        using T = std::remove_pointer_t<decltype(of_type)>;
        using Branch = std::remove_pointer_t<decltype(of_branch)>;
        residual_norm_kernel<<<blocks_for(rows.rows), kThreads, 0, stream_of(stream)>>>(
            sum, static_cast<T*>(normed), means, deviations, input, static_cast<const Branch*>(branch),
            weight, bias, rows);
      });
    });
    check_launch("residual_norm");
  }

  void residual_norm_gradient(float* gradient, float* partial, const float* passed, const void* of_normed,
                              Element type, const float* sum, const float* weight, const float* means,
                              const float* deviations, const NormRows& rows, Stream stream) const override {
    require(rows.width <= kWidestNorm, "so wide a row is not normed by a fused kernel",
            {.subject = "residual_norm_gradient", .advice = "leave out --kernels fused"});
    const std::size_t bytes = 2 * rows.width * sizeof(float);
    // Of 48 KiB the statistics of join_over_block() take some: more must be asked for.
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      cudaFuncSetAttribute(residual_norm_gradient_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
      residual_norm_gradient_kernel<<<kPartialRows, kThreads, bytes, stream_of(stream)>>>(
          gradient, partial, passed, static_cast<const T*>(of_normed), sum, weight, means, deviations, rows);
    });
    check_launch("residual_norm_gradient");
  }

  void batch_norm(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                  const StepMoments& step, Stream stream) const override {
    if (norm.rows == 0 || norm.channels == 0) return;
    with_element_type(norm.type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      const auto* const from = static_cast<const T*>(x);
      channel_moments_kernel<<<statistic_blocks(norm), kStatisticThreads, 0, stream_of(stream)>>>(from, norm);
      finish_moments_kernel<<<channel_blocks(norm), kThreads, 0, stream_of(stream)>>>(from, norm, step);
      const auto scale = [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
        scale_channels_kernel<kAtOnce><<<element_blocks(norm, kAtOnce), kThreads, 0, stream_of(stream)>>>(
            static_cast<T*>(output), from, static_cast<const T*>(residual), norm);
      };
      at_once<T>(norm, {output, x, residual}, scale);
    });
    check_launch("batch_norm");
  }

  void batch_norm_gradient(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                           Stream stream) const override {
    if (norm.rows == 0 || norm.channels == 0) return;
    with_element_type(norm.type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      channel_gradient_sums_kernel<<<statistic_blocks(norm), kStatisticThreads, 0, stream_of(stream)>>>(
          static_cast<const T*>(gradient.of_output), static_cast<const T*>(gradient.x),
          static_cast<const T*>(gradient.output), norm);
      finish_gradient_sums_kernel<<<channel_blocks(norm), kThreads, 0, stream_of(stream)>>>(gradient, norm);
      const auto make = [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
        channel_gradient_kernel<kAtOnce, T>
            <<<element_blocks(norm, kAtOnce), kThreads, 0, stream_of(stream)>>>(gradient, norm);
      };
      at_once<T>(norm, {gradient.of_x, gradient.of_residual, gradient.of_output, gradient.x, gradient.output},
                 make);
    });
    check_launch("batch_norm_gradient");
  }

  void decide(UpdateDecision* decision, const SumOfSquares* squares, double clip, double weight,
              Stream stream) const override {
    decide_kernel<<<1, 1, 0, stream_of(stream)>>>(decision, squares, clip, weight);
    check_launch("decide");
  }

  void adam(float* values, float* first, float* second, const float* gradient, void* copy, Element copy_type,
            std::size_t n, const AdamRule& rule, const UpdateDecision* decision,
            Stream stream) const override {
    if (n == 0) return;
    const unsigned blocks = blocks_for((n + kThreads - 1) / kThreads);
    with_element_type(copy_type, [&](auto* of_copy) {
      using Copy = std::remove_pointer_t<decltype(of_copy)>;
      adam_kernel<<<blocks, kThreads, 0, stream_of(stream)>>>(values, first, second, gradient,
                                                              static_cast<Copy*>(copy), n, rule, decision);
    });
    check_launch("adam");
  }

 private:
  static constexpr dim3 kStatisticThreads{kChannelTile, kRowLanes};
  static dim3 statistic_blocks(const ChannelNorm& norm) {
    return {static_cast<unsigned>((norm.channels + kChannelTile - 1) / kChannelTile),
            static_cast<unsigned>(kStatisticParts)};
  }
  static unsigned channel_blocks(const ChannelNorm& norm) {
    return static_cast<unsigned>((norm.channels + kThreads - 1) / kThreads);
  }
  static unsigned element_blocks(const ChannelNorm& norm, std::size_t at_once) {
    return blocks_for((norm.rows * norm.channels / at_once + kThreads - 1) / kThreads);
  }
  /// Calls `launch` with how many elements a thread takes at once: 16 bytes, where all `pointers` allow it.
  template <class T, class Launch>
  static void at_once(const ChannelNorm& norm, std::initializer_list<const void*> pointers,
                      const Launch& launch) {
    constexpr std::size_t kMost = Vector<T>::kElements;
    bool aligned = norm.channels % kMost == 0;
    for (const void* pointer : pointers)
      aligned = aligned && reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Vector<T>) == 0;
    if (aligned) return launch(std::integral_constant<std::size_t, kMost>());
    launch(std::integral_constant<std::size_t, 1>());
  }
  template <class T>
  static bool are_aligned(const void* logits, const TokenRows& rows) {
    return reinterpret_cast<std::uintptr_t>(logits) % sizeof(Vector<T>) == 0 &&
           rows.stride % Vector<T>::kElements == 0;
  }
};

}  // namespace

const FusedKernels& fused_kernels_of_gpu() {
  static const CudaFusedKernels kernels;
  return kernels;
}

}  // namespace dtrain::kernels
