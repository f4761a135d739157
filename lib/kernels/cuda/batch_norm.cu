#include "kernels/cuda/batch_norm.hpp"

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/launch.hpp"

namespace dtrain::kernels {
namespace {

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

constexpr dim3 kStatisticThreads{kChannelTile, kRowLanes};
dim3 statistic_blocks(const ChannelNorm& norm) {
  return {static_cast<unsigned>((norm.channels + kChannelTile - 1) / kChannelTile),
          static_cast<unsigned>(FusedKernels::kStatisticParts)};
}
unsigned channel_blocks(const ChannelNorm& norm) {
  return static_cast<unsigned>((norm.channels + kThreads - 1) / kThreads);
}
unsigned element_blocks(const ChannelNorm& norm, std::size_t at_once) {
  return blocks_for((norm.rows * norm.channels / at_once + kThreads - 1) / kThreads);
}
/// Calls `launch` with how many elements a thread takes at once: 16 bytes, where all `pointers` allow it.
template <class T, class Launch>
void at_once(const ChannelNorm& norm, std::initializer_list<const void*> pointers, const Launch& launch) {
  constexpr std::size_t kMost = Vector<T>::kElements;
  bool aligned = norm.channels % kMost == 0;
  for (const void* pointer : pointers)
    aligned = aligned && reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Vector<T>) == 0;
  if (aligned) return launch(std::integral_constant<std::size_t, kMost>());
  launch(std::integral_constant<std::size_t, 1>());
}
}  // namespace

void batch_norm_on_gpu(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                       const StepMoments& step, cudaStream_t stream) {
  if (norm.rows == 0 || norm.channels == 0) return;
  with_element_type(norm.type, [&](auto* of_type) {
    using T = std::remove_pointer_t<decltype(of_type)>;
    const auto* const from = static_cast<const T*>(x);
    channel_moments_kernel<<<statistic_blocks(norm), kStatisticThreads, 0, stream>>>(from, norm);
    finish_moments_kernel<<<channel_blocks(norm), kThreads, 0, stream>>>(from, norm, step);
    const auto scale = [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
      scale_channels_kernel<kAtOnce><<<element_blocks(norm, kAtOnce), kThreads, 0, stream>>>(
          static_cast<T*>(output), from, static_cast<const T*>(residual), norm);
    };
    at_once<T>(norm, {output, x, residual}, scale);
  });
  check_launch("batch_norm");
}

void batch_norm_gradient_on_gpu(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                                cudaStream_t stream) {
  if (norm.rows == 0 || norm.channels == 0) return;
  with_element_type(norm.type, [&](auto* of_type) {
    using T = std::remove_pointer_t<decltype(of_type)>;
    channel_gradient_sums_kernel<<<statistic_blocks(norm), kStatisticThreads, 0, stream>>>(
        static_cast<const T*>(gradient.of_output), static_cast<const T*>(gradient.x),
        static_cast<const T*>(gradient.output), norm);
    finish_gradient_sums_kernel<<<channel_blocks(norm), kThreads, 0, stream>>>(gradient, norm);
    const auto make = [&]<std::size_t kAtOnce>(std::integral_constant<std::size_t, kAtOnce>) {
      channel_gradient_kernel<kAtOnce, T>
          <<<element_blocks(norm, kAtOnce), kThreads, 0, stream>>>(gradient, norm);
    };
    at_once<T>(norm, {gradient.of_x, gradient.of_residual, gradient.of_output, gradient.x, gradient.output},
               make);
  });
  check_launch("batch_norm_gradient");
}

}  // namespace dtrain::kernels
