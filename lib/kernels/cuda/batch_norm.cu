// Batch norm of channels that lie last. A thread has the same channels in each of its rows, a whole vector
// where they lie at one, and reads several rows before it uses the first. What decides is how long a kernel
// waits: of a resnet18 with 128 images, in bf16, a tensor takes an H200 1.8 us on average to read or write.
// With an element a thread, sums in double and divisions for the channel, the six kernels took 109 us
// together (H200, 2026-11-26); these are predicted to take 35.
#include "kernels/cuda/batch_norm.hpp"

#include <algorithm>

#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/shared_memory.hpp"
#include "kernels/cuda/warp.hpp"

namespace dtrain::kernels {
namespace {

/// Rows that a thread reads before it uses the first: as many as registers suffice for, with two blocks to a
/// processor.
template <class Values>
constexpr std::size_t kRowsAtOnce = sizeof(Values) > 2 * kVectorBytes ? 2 : 4;
/// Of which a thread adds up terms as floats; such sums are added up as doubles. So a sum of float terms is
/// wrong by at most kRowsInFloat x 2^-24 of the sum of their sizes, however many rows there are.
constexpr std::size_t kRowsInFloat = 16;
// Blocks of a launch, where rows suffice: some for each processor of a GPU.
constexpr std::size_t kStatisticBlocks = 512;
constexpr std::size_t kElementBlocks = 1024;

/// A block's part of the channels: threads side by side have neighbours, at_once each.
template <std::size_t at_once>
struct Tile {
  static constexpr std::size_t kAtOnce = at_once;
  static constexpr unsigned kColumns = at_once == 1 ? 32 : 64 / at_once;
  static constexpr unsigned kRows = kThreads / kColumns;
  static constexpr unsigned kChannels = kColumns * at_once;
  static dim3 threads() { return {kColumns, kRows}; }
  static dim3 blocks(const ChannelNorm& norm, std::size_t parts) {
    return {static_cast<unsigned>((norm.channels + kChannels - 1) / kChannels), static_cast<unsigned>(parts)};
  }

  static __device__ unsigned thread() { return threadIdx.y * kColumns + threadIdx.x; }
  /// The thread's first channel and its first row.
  static __device__ std::size_t channel() {
    return (std::size_t{blockIdx.x} * kColumns + threadIdx.x) * kAtOnce;
  }
  static __device__ std::size_t row() { return std::size_t{blockIdx.y} * kRows + threadIdx.y; }
  static __device__ std::size_t row_step() { return std::size_t{gridDim.y} * kRows; }
};

/// Of kRowsAtOnce<Values> rows from `row` on, `step` apart, where there are so many: `load(values, i)`, then
/// `use(values, i)`, i being the place of channel `c`.
template <class Values, class Load, class Use>
__device__ void some_rows(std::size_t row, std::size_t step, std::size_t c, const ChannelNorm& norm,
                          const Load& load, const Use& use) {
  Values values[kRowsAtOnce<Values>];
#pragma unroll
  for (std::size_t k = 0; k < kRowsAtOnce<Values>; ++k)
    if (row + k * step < norm.rows) load(values[k], (row + k * step) * norm.channels + c);
#pragma unroll
  for (std::size_t k = 0; k < kRowsAtOnce<Values>; ++k)
    if (row + k * step < norm.rows) use(values[k], (row + k * step) * norm.channels + c);
}

/// All rows of the thread.
template <class Tile, class Values, class Load, class Use>
__device__ void each_row(const ChannelNorm& norm, const Load& load, const Use& use) {
  for (std::size_t row = Tile::row(); row < norm.rows; row += kRowsAtOnce<Values> * Tile::row_step())
    some_rows<Values>(row, Tile::row_step(), Tile::channel(), norm, load, use);
}

template <std::size_t kAtOnce>
struct TwoSums {
  float first[kAtOnce];
  float second[kAtOnce];
};

/// Two sums of what `add(sums, values)` adds for each row, for all channels of the tile, into the block's
/// row of `partial`: in an order that is always the same.
template <class Tile, class Values, class Load, class Add>
__device__ void sum_rows(const ChannelNorm& norm, const Load& load, const Add& add) {
  constexpr std::size_t kAtOnce = Tile::kAtOnce;
  struct Memory {
    double of[2 * kAtOnce][kThreads + 4];  // four more: for banks
  };
  auto& sums = shared_memory<Memory>().of;
  for (auto& sum : sums) sum[Tile::thread()] = 0.0;
  if (Tile::channel() < norm.channels) {
    for (std::size_t row = Tile::row(); row < norm.rows; row += kRowsInFloat * Tile::row_step()) {
      TwoSums<kAtOnce> own{};
      for (std::size_t k = 0; k < kRowsInFloat; k += kRowsAtOnce<Values>) {
        some_rows<Values>(row + k * Tile::row_step(), Tile::row_step(), Tile::channel(), norm, load,
                          [&](const Values& values, std::size_t) { add(own, values); });
      }
      for (std::size_t k = 0; k < kAtOnce; ++k) {
        sums[k][Tile::thread()] += static_cast<double>(own.first[k]);
        sums[kAtOnce + k][Tile::thread()] += static_cast<double>(own.second[k]);
      }
    }
  }
  __syncthreads();
  for (unsigned i = Tile::thread(); i < 2 * Tile::kChannels; i += kThreads) {
    const unsigned which = i / Tile::kChannels;
    const unsigned own = i % Tile::kChannels;  // the channel, in the tile
    const std::size_t c = std::size_t{blockIdx.x} * Tile::kChannels + own;
    if (c >= norm.channels) continue;
    const double* const of_rows = sums[which * kAtOnce + own % kAtOnce] + own / kAtOnce;
    double sum = of_rows[0];
    for (unsigned row = 1; row < Tile::kRows; ++row) sum += of_rows[row * Tile::kColumns];
    norm.partial[(std::size_t{blockIdx.y} * 2 + which) * norm.channels + c] = sum;
  }
}

/// Near the mean of a channel, so that squares of a large mean do not drown the variance: of some rows,
/// spread over all. As channel_centre(), in float, by all threads of the block together.
template <class Tile, class T>
__device__ Elements<float, Tile::kAtOnce> channel_centres(const T* x, const ChannelNorm& norm) {
  constexpr std::size_t kProbes = 16;
  constexpr std::size_t kAtOnce = Tile::kAtOnce;
  struct Memory {
    Elements<float, kAtOnce> probes[kProbes][Tile::kColumns];
  };
  auto& probes = shared_memory<Memory>().probes;
  const std::size_t count = norm.rows < kProbes ? norm.rows : kProbes;
  const bool has_channel = Tile::channel() < norm.channels;
  for (std::size_t p = threadIdx.y; has_channel && p < count; p += Tile::kRows) {
    const auto values = loaded<kAtOnce>(x + p * norm.rows / count * norm.channels + Tile::channel());
    for (std::size_t k = 0; k < kAtOnce; ++k) probes[p][threadIdx.x].of[k] = to_float(values.of[k]);
  }
  __syncthreads();
  Elements<float, kAtOnce> centres{};
  for (std::size_t p = 0; has_channel && p < count; ++p)
    for (std::size_t k = 0; k < kAtOnce; ++k) centres.of[k] += probes[p][threadIdx.x].of[k];
  for (float& centre : centres.of) centre /= static_cast<float>(count);
  return centres;
}

/// Leaves the centres where the means will be.
template <class Tile, class T>
__global__ void __launch_bounds__(kThreads) channel_moments_kernel(const T* x, ChannelNorm norm) {
  using Values = Elements<T, Tile::kAtOnce>;
  const auto centres = channel_centres<Tile>(x, norm);
  if (Tile::row() == 0 && Tile::channel() < norm.channels) {
    for (std::size_t k = 0; k < Tile::kAtOnce; ++k)
      norm.mean[Tile::channel() + k] = static_cast<double>(centres.of[k]);
  }
  sum_rows<Tile, Values>(
      norm, [=](Values& values, std::size_t i) { values = loaded<Tile::kAtOnce>(x + i); },
      [=](TwoSums<Tile::kAtOnce>& sums, const Values& values) {
        for (std::size_t k = 0; k < Tile::kAtOnce; ++k) {
          const float deviation = to_float(values.of[k]) - centres.of[k];
          sums.first[k] += deviation;
          sums.second[k] += deviation * deviation;
        }
      });
}

// A block of the kernels that add up the partial sums has few channels and, of each, many threads.
constexpr unsigned kFinishChannels = 8;
constexpr unsigned kFinishParts = kThreads / kFinishChannels;

struct ChannelSums {
  double first;
  double second;
};

/// Those of channel `c`, over all parts, in an order that is always the same. All threads of the block call
/// it.
__device__ ChannelSums sum_of_parts(const ChannelNorm& norm, std::size_t c, std::size_t parts) {
  ChannelSums own{0.0, 0.0};
  for (std::size_t part = threadIdx.y; c < norm.channels && part < parts; part += kFinishParts) {
    own.first += norm.partial[part * 2 * norm.channels + c];
    own.second += norm.partial[(part * 2 + 1) * norm.channels + c];
  }
  own = {sum_over_warp(own.first, kFinishChannels), sum_over_warp(own.second, kFinishChannels)};
  struct Memory {
    ChannelSums of[kThreads / kWarp][kFinishChannels];
  };
  auto& of_warps = shared_memory<Memory>().of;
  const unsigned thread = threadIdx.y * kFinishChannels + threadIdx.x;
  if (thread % kWarp < kFinishChannels) of_warps[thread / kWarp][threadIdx.x] = own;
  __syncthreads();
  ChannelSums sum = of_warps[0][threadIdx.x];
  for (unsigned warp = 1; warp < kThreads / kWarp; ++warp) {
    sum.first += of_warps[warp][threadIdx.x].first;
    sum.second += of_warps[warp][threadIdx.x].second;
  }
  return sum;
}

__global__ void finish_moments_kernel(ChannelNorm norm, StepMoments step, std::size_t parts) {
  const std::size_t c = std::size_t{blockIdx.x} * kFinishChannels + threadIdx.x;
  const ChannelSums sums = sum_of_parts(norm, c, parts);
  if (c >= norm.channels || threadIdx.y != 0) return;
  const auto rows = static_cast<double>(norm.rows);
  const double offset = sums.first / rows;
  const double variance = fmax(sums.second / rows - offset * offset, 0.0);
  const double mean = norm.mean[c] + offset;  // there: the centre
  const auto of = channel_scale_of(mean, variance, norm.epsilon, norm.weight[c], norm.bias[c]);
  norm.mean[c] = mean;
  norm.inverse_deviation[c] = of.inverse_deviation;
  norm.scale[c] = of.scale;
  norm.shift[c] = of.shift;
  if (step.mean == nullptr) return;
  step.mean[c] += step.samples * mean;
  step.variance[c] += step.samples * variance * rows / (rows - 1.0);
}

template <class Tile, class T>
__global__ void __launch_bounds__(kThreads)
    scale_channels_kernel(T* output, const T* x, const T* residual, ChannelNorm norm) {
  constexpr std::size_t kAtOnce = Tile::kAtOnce;
  struct Values {
    Elements<T, kAtOnce> x, residual;
  };
  if (Tile::channel() >= norm.channels) return;
  const auto scale = loaded<kAtOnce>(norm.scale + Tile::channel());
  const auto shift = loaded<kAtOnce>(norm.shift + Tile::channel());
  each_row<Tile, Values>(
      norm,
      [=](Values& values, std::size_t i) {
        values.x = loaded<kAtOnce>(x + i);
        if (residual != nullptr) values.residual = loaded<kAtOnce>(residual + i);
      },
      [=](const Values& values, std::size_t i) {
        Elements<T, kAtOnce> made;
        for (std::size_t k = 0; k < kAtOnce; ++k) {
          const float added = residual != nullptr ? to_float(values.residual.of[k]) : 0.0F;
          made.of[k] =
              from_float<T>(scaled_of(to_float(values.x.of[k]), scale.of[k], shift.of[k], added, norm.relu));
        }
        store(output + i, made);
      });
}

/// The gradient that reaches the normalisation, of a thread's channels. The ReLU's zeros are seen from its
/// output or, where there is none, from x.
template <std::size_t kAtOnce, class T>
struct MaskedRows {
  struct Values {
    Elements<T, kAtOnce> x, above, output;
  };
  const T* x;
  const T* above;
  const T* output;
  bool relu;
  Elements<float, kAtOnce> scale;
  Elements<float, kAtOnce> shift;

  /// Of the channels from `c` on.
  __device__ MaskedRows(const ChannelNormGradient& gradient, const ChannelNorm& norm, std::size_t c)
      : x(static_cast<const T*>(gradient.x)),
        above(static_cast<const T*>(gradient.of_output)),
        output(static_cast<const T*>(gradient.output)),
        relu(norm.relu),
        scale(loaded<kAtOnce>(norm.scale + c)),
        shift(loaded<kAtOnce>(norm.shift + c)) {}

  __device__ void load(Values& values, std::size_t i) const {
    values.x = loaded<kAtOnce>(x + i);
    values.above = loaded<kAtOnce>(above + i);
    if (output != nullptr) values.output = loaded<kAtOnce>(output + i);
  }
  __device__ float at(const Values& values, std::size_t k) const {
    const float y = output != nullptr
                        ? to_float(values.output.of[k])
                        : scaled_of(to_float(values.x.of[k]), scale.of[k], shift.of[k], 0.0F, false);
    return masked_of(to_float(values.above.of[k]), y, relu);
  }
};

/// The thread's first channel, or the last one's where it has none: to read from.
template <class Tile>
__device__ std::size_t readable_channel(const ChannelNorm& norm) {
  const std::size_t last = norm.channels - Tile::kAtOnce;
  return Tile::channel() < last ? Tile::channel() : last;
}

/// Sums of g and of g (x - mean), the mean being rounded to float.
template <class Tile, class T>
__global__ void __launch_bounds__(kThreads, 2)
    channel_gradient_sums_kernel(ChannelNormGradient gradient, ChannelNorm norm) {
  using Rows = MaskedRows<Tile::kAtOnce, T>;
  const std::size_t c = readable_channel<Tile>(norm);
  const Rows rows(gradient, norm, c);
  Elements<float, Tile::kAtOnce> means;
  for (std::size_t k = 0; k < Tile::kAtOnce; ++k) means.of[k] = static_cast<float>(norm.mean[c + k]);
  sum_rows<Tile, typename Rows::Values>(
      norm, [&](typename Rows::Values& values, std::size_t i) { rows.load(values, i); },
      [&](TwoSums<Tile::kAtOnce>& sums, const typename Rows::Values& values) {
        for (std::size_t k = 0; k < Tile::kAtOnce; ++k) {
          const float g = rows.at(values, k);
          sums.first[k] += g;
          sums.second[k] += g * (to_float(values.x.of[k]) - means.of[k]);
        }
      });
}

__global__ void finish_gradient_sums_kernel(ChannelNormGradient gradient, ChannelNorm norm,
                                            std::size_t parts) {
  const std::size_t c = std::size_t{blockIdx.x} * kFinishChannels + threadIdx.x;
  const ChannelSums sums = sum_of_parts(norm, c, parts);
  if (c >= norm.channels || threadIdx.y != 0) return;
  const double rounding = norm.mean[c] - static_cast<double>(static_cast<float>(norm.mean[c]));
  const double product_sum = sums.second - rounding * sums.first;
  gradient.of_weight[c] = static_cast<float>(product_sum * norm.inverse_deviation[c]);
  gradient.of_bias[c] = static_cast<float>(sums.first);
  const auto factors = channel_factors_of(sums.first, product_sum, static_cast<double>(norm.rows),
                                          norm.weight[c], norm.mean[c], norm.inverse_deviation[c]);
  gradient.factors[c] = factors.a;
  gradient.factors[norm.channels + c] = factors.b;
  gradient.factors[2 * norm.channels + c] = factors.c;
}

template <class Tile, class T>
__global__ void __launch_bounds__(kThreads, 2)
    channel_gradient_kernel(ChannelNormGradient gradient, ChannelNorm norm) {
  constexpr std::size_t kAtOnce = Tile::kAtOnce;
  using Rows = MaskedRows<kAtOnce, T>;
  const std::size_t c = Tile::channel();
  if (c >= norm.channels) return;
  const Rows rows(gradient, norm, c);
  const auto of_gradient = loaded<kAtOnce>(gradient.factors + c);
  const auto of_x = loaded<kAtOnce>(gradient.factors + norm.channels + c);
  const auto constant = loaded<kAtOnce>(gradient.factors + 2 * norm.channels + c);
  each_row<Tile, typename Rows::Values>(
      norm, [&](typename Rows::Values& values, std::size_t i) { rows.load(values, i); },
      [&](const typename Rows::Values& values, std::size_t i) {
        Elements<T, kAtOnce> made;
        Elements<T, kAtOnce> passed;
        for (std::size_t k = 0; k < kAtOnce; ++k) {
          const float g = rows.at(values, k);
          passed.of[k] = from_float<T>(g);
          made.of[k] =
              from_float<T>(g * of_gradient.of[k] + (to_float(values.x.of[k]) * of_x.of[k] + constant.of[k]));
        }
        store(static_cast<T*>(gradient.of_x) + i, made);
        if (gradient.of_residual != nullptr) store(static_cast<T*>(gradient.of_residual) + i, passed);
      });
}

/// Parts that the rows are dealt to: `blocks` for the whole launch, and no part without `rows_of_thread`
/// rows.
template <class Tile>
std::size_t parts_of(const ChannelNorm& norm, std::size_t blocks, std::size_t rows_of_thread) {
  const std::size_t tiles = Tile::blocks(norm, 1).x;
  const std::size_t rows = Tile::kRows * rows_of_thread;
  return std::clamp<std::size_t>((norm.rows + rows - 1) / rows, 1, std::max<std::size_t>(blocks / tiles, 1));
}
template <class Tile>
std::size_t statistic_parts(const ChannelNorm& norm) {
  return std::min(parts_of<Tile>(norm, kStatisticBlocks, 4), FusedKernels::kStatisticParts);
}
dim3 finish_blocks(const ChannelNorm& norm) {
  return static_cast<unsigned>((norm.channels + kFinishChannels - 1) / kFinishChannels);
}
constexpr dim3 kFinishThreads{kFinishChannels, kFinishParts};

/// Calls `call` with the type of the tensors and the tile for them, of whole vectors where `pointers` and the
/// channels allow it.
template <class Call>
void with_tile(const ChannelNorm& norm, std::initializer_list<const void*> pointers, const Call& call) {
  with_element_type(norm.type, [&]<class T>(T* of_type) {
    constexpr std::size_t kMost = Vector<T>::kElements;
    const bool whole =
        norm.channels % kMost == 0 && are_aligned(pointers) && are_aligned({norm.scale, norm.shift});
    if (whole) return call(of_type, Tile<kMost>());
    call(of_type, Tile<1>());
  });
}
}  // namespace

void batch_norm_on_gpu(void* output, const void* x, const void* residual, const ChannelNorm& norm,
                       const StepMoments& step, cudaStream_t stream) {
  if (norm.rows == 0 || norm.channels == 0) return;
  with_tile(norm, {output, x, residual}, [&]<class T, class Tile>(T*, Tile) {
    const auto* const from = static_cast<const T*>(x);
    const std::size_t parts = statistic_parts<Tile>(norm);
    launch(channel_moments_kernel<Tile, T>, Tile::blocks(norm, parts), Tile::threads(), stream, from, norm);
    launch(finish_moments_kernel, finish_blocks(norm), kFinishThreads, stream, norm, step, parts);
    launch(scale_channels_kernel<Tile, T>, Tile::blocks(norm, parts_of<Tile>(norm, kElementBlocks, 1)),
           Tile::threads(), stream, static_cast<T*>(output), from, static_cast<const T*>(residual), norm);
  });
  check_launch("batch_norm");
}

void batch_norm_gradient_on_gpu(const ChannelNormGradient& gradient, const ChannelNorm& norm,
                                cudaStream_t stream) {
  if (norm.rows == 0 || norm.channels == 0) return;
  with_tile(norm,
            {gradient.of_x, gradient.of_residual, gradient.of_output, gradient.x, gradient.output,
             gradient.factors},
            [&]<class T, class Tile>(T*, Tile) {
              const std::size_t parts = statistic_parts<Tile>(norm);
              launch(channel_gradient_sums_kernel<Tile, T>, Tile::blocks(norm, parts), Tile::threads(),
                     stream, gradient, norm);
              launch(finish_gradient_sums_kernel, finish_blocks(norm), kFinishThreads, stream, gradient, norm,
                     parts);
              launch(channel_gradient_kernel<Tile, T>,
                     Tile::blocks(norm, parts_of<Tile>(norm, kElementBlocks, 1)), Tile::threads(), stream,
                     gradient, norm);
            });
  check_launch("batch_norm_gradient");
}

}  // namespace dtrain::kernels
