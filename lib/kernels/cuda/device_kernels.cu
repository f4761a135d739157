#include "kernels/device_kernels.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/fused_kernels.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/product_kernels.hpp"
#include "kernels/cuda/shared_memory.hpp"
#include "kernels/philox_rounds.hpp"

namespace dtrain::kernels {
namespace {

constexpr std::size_t kMostBlocks = 1024;
constexpr std::size_t kMostChannels = DeviceKernels::kMostChannels;
constexpr std::size_t kMostImages = 512;  // of one launch: their crops are arguments, of 4 KiB at most

cudaStream_t stream_of(DeviceKernels::Stream stream) { return static_cast<cudaStream_t>(stream); }

/// Blocks for `n` threads' work; a thread takes further elements where they do not suffice.
unsigned blocks_of(std::size_t n) {
  return static_cast<unsigned>(std::clamp<std::size_t>((n + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__device__ std::size_t first_index() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::size_t index_step() { return std::size_t{gridDim.x} * blockDim.x; }

/// A crop in four bytes: paddings are small.
struct PackedCrop {
  std::uint8_t down;
  std::uint8_t right;
  std::uint8_t flip;
  std::uint8_t unused;
};

struct ImageArguments {
  PackedCrop how[kMostImages];
  float factor[kMostChannels];
  float shift[kMostChannels];
  int channels;
  int height;
  int width;
  int padding;
};

template <class T>
__global__ void prepare_images_kernel(T* out, const std::uint8_t* bytes, std::size_t pixels,
                                      const __grid_constant__ ImageArguments by) {
  const std::size_t plane = static_cast<std::size_t>(by.height) * by.width;
  for (std::size_t i = first_index(); i < pixels; i += index_step()) {
    const std::size_t image = i / plane;
    const int y = static_cast<int>(i % plane) / by.width;
    const int x = static_cast<int>(i % plane) % by.width;
    const PackedCrop& packed = by.how[image];
    const CropAndFlip how{packed.down, packed.right, packed.flip != 0};
    const int source = source_of(y, x, by.height, by.width, how, by.padding);
    const std::uint8_t* from = bytes + image * by.channels * plane;
    for (int channel = 0; channel < by.channels; ++channel) {
      const std::uint8_t byte = source < 0 ? std::uint8_t{0} : from[channel * plane + source];
      out[i * by.channels + channel] = from_float<T>(normalized(byte, by.factor[channel], by.shift[channel]));
    }
  }
}

/// A thread has the eight elements of one block of random bits.
template <class T>
__global__ void dropout_kernel(T* out, const T* input, LogicalSlice slice, RandomKey key,
                               const std::uint32_t* major, std::uint32_t threshold, float scale,
                               std::size_t blocks_per_row) {
  constexpr std::uint64_t kDraws = 8;
  if (major != nullptr) key.major = *major;
  const std::size_t blocks = slice.rows * blocks_per_row;
  for (std::size_t i = first_index(); i < blocks; i += index_step()) {
    const std::size_t row = i / blocks_per_row;
    const std::uint64_t begin = slice.first_index + row * slice.row_stride;
    const std::uint64_t block = begin / kDraws + i % blocks_per_row;
    const auto words = philox_rounds(philox_input(key, block));
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::uint64_t index = block * kDraws + draw;
      if (index < begin || index >= begin + slice.columns) continue;
      const std::uint32_t bits = (words[draw / 2] >> (16 * (draw % 2))) & 0xFFFFU;
      const std::size_t place = row * slice.columns + (index - begin);
      out[place] = bits >= threshold ? from_float<T>(to_float(input[place]) * scale) : from_float<T>(0.0F);
    }
  }
}

template <class To, class From>
__global__ void cast_scale_kernel(To* out, const From* in, std::size_t n, float scale) {
  for (std::size_t i = first_index(); i < n; i += index_step())
    out[i] = from_float<To>(to_float(in[i]) * scale);
}

/// The sum over the block's threads, in an order that is always the same; whole in thread 0.
__device__ SumOfSquares sum_over_block(const SumOfSquares& own) {
  struct Memory {
    double sums[kThreads];
    long long counts[kThreads];
  };
  auto& [sums, counts] = shared_memory<Memory>();
  sums[threadIdx.x] = own.sum;
  counts[threadIdx.x] = own.non_finite;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    sums[threadIdx.x] += sums[threadIdx.x + half];
    counts[threadIdx.x] += counts[threadIdx.x + half];
  }
  SumOfSquares sum;
  sum.sum = sums[threadIdx.x];
  sum.non_finite = counts[threadIdx.x];
  return sum;
}

__global__ void squares_kernel(SumOfSquares* of_block, const float* values, std::size_t n) {
  constexpr std::size_t kAtOnce = Vector<float>::kElements;
  SumOfSquares own;
  const auto add = [&](float x) {
    const double value = x;
    own.sum += value * value;
    own.non_finite += isfinite(x) ? 0 : 1;
  };
  // What lies before the first whole vector and behind the last one is read one by one.
  const std::size_t before =
      n < kAtOnce ? n : -(reinterpret_cast<std::uintptr_t>(values) / sizeof(float)) % kAtOnce;
  const std::size_t vectors = (n - before) / kAtOnce;
  for (std::size_t v = first_index(); v < vectors; v += index_step())
    for (const float x : loaded<kAtOnce>(values + before + v * kAtOnce).of) add(x);
  const std::size_t behind = before + vectors * kAtOnce;
  for (std::size_t i = first_index(); i < before + n - behind; i += index_step())
    add(values[i < before ? i : behind + i - before]);
  const SumOfSquares sum = sum_over_block(own);
  if (threadIdx.x == 0) of_block[blockIdx.x] = sum;
}

__global__ void join_squares_kernel(SumOfSquares* result, const SumOfSquares* of_block, unsigned blocks) {
  SumOfSquares own;
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) {
    own.sum += of_block[i].sum;
    own.non_finite += of_block[i].non_finite;
  }
  const SumOfSquares sum = sum_over_block(own);
  if (threadIdx.x == 0) *result = sum;
}

ImageArguments arguments_of(const ImageBatch& batch) {
  require(batch.shape.channels <= kMostChannels && batch.padding <= DeviceKernels::kMostPadding,
          "images of so many channels or so wide a padding are not prepared on a GPU",
          {.subject = "prepare_images"});
  ImageArguments by{};
  std::copy(batch.factor.begin(), batch.factor.end(), by.factor);
  std::copy(batch.shift.begin(), batch.shift.end(), by.shift);
  by.channels = static_cast<int>(batch.shape.channels);
  by.height = static_cast<int>(batch.shape.height);
  by.width = static_cast<int>(batch.shape.width);
  by.padding = batch.padding;
  return by;
}

class CudaKernels final : public DeviceKernels {
 public:
  void prepare_images(void* out, Element type, const std::uint8_t* bytes, std::size_t images,
                      const ImageBatch& batch, Stream stream) const override {
    ImageArguments by = arguments_of(batch);
    const std::size_t plane = batch.shape.height * batch.shape.width;
    const std::size_t image = batch.shape.channels * plane;
    for (std::size_t first = 0; first < images; first += kMostImages) {
      const std::size_t count = std::min(kMostImages, images - first);
      for (std::size_t i = 0; i < count; ++i) {
        const CropAndFlip how = batch.how_of(first + i);
        by.how[i] = {static_cast<std::uint8_t>(how.down), static_cast<std::uint8_t>(how.right),
                     static_cast<std::uint8_t>(how.flip ? 1 : 0), 0};
      }
      with_element_type(type, [&](auto* of_type) {
        using T = std::remove_pointer_t<decltype(of_type)>;
        launch(prepare_images_kernel<T>, blocks_of(count * plane), kThreads, stream_of(stream),
               static_cast<T*>(out) + first * image, bytes + first * image, count * plane, by);
      });
      check_launch("prepare_images");
    }
  }

  void dropout(void* out, const void* input, Element type, const LogicalSlice& slice, const RandomKey& key,
               const std::uint32_t* major, double probability, Stream stream) const override {
    if (slice.rows == 0 || slice.columns == 0) return;
    const auto [threshold, scale] = dropout_rule(probability);
    const std::size_t blocks_per_row =
        slice.columns / 8 + 2;  // the first and the last may be shared with neighbours
    with_element_type(type, [&](auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      launch(dropout_kernel<T>, blocks_of(slice.rows * blocks_per_row), kThreads, stream_of(stream),
             static_cast<T*>(out), static_cast<const T*>(input), slice, key, major, threshold,
             static_cast<float>(scale), blocks_per_row);
    });
    check_launch("dropout");
  }

  void cast_scale(void* out, Element to, const void* in, Element from, std::size_t n, float scale,
                  Stream stream) const override {
    with_element_type(to, [&](auto* of_out) {
      with_element_type(from, [&](auto* of_in) {
        using To = std::remove_pointer_t<decltype(of_out)>;
        using From = std::remove_pointer_t<decltype(of_in)>;
        launch(cast_scale_kernel<To, From>, blocks_of(n), kThreads, stream_of(stream), static_cast<To*>(out),
               static_cast<const From*>(in), n, scale);
      });
    });
    check_launch("cast_scale");
  }

  void sum_of_squares_and_nonfinite(SumOfSquares* result, void* scratch, const float* values, std::size_t n,
                                    Stream stream) const override {
    static_assert(kMostBlocks * sizeof(SumOfSquares) <= kScratchBytes);
    auto* const of_block = static_cast<SumOfSquares*>(scratch);
    const unsigned blocks = blocks_of(n);
    launch(squares_kernel, blocks, kThreads, stream_of(stream), of_block, values, n);
    launch(join_squares_kernel, 1, kThreads, stream_of(stream), result, of_block, blocks);
    check_launch("sum_of_squares_and_nonfinite");
  }

  bool pin(void* memory, std::size_t bytes) const override {
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    cudaGetLastError();  // it is not the next call's error
    return false;
  }
  void unpin(void* memory) const noexcept override { cudaHostUnregister(memory); }

  const FusedKernels* fused() const override { return &fused_kernels_of_gpu(); }
  const ProductKernels* products() const override { return &product_kernels_of_gpu(); }
};

}  // namespace
}  // namespace dtrain::kernels

/// The oldest architecture there is code for, such as 80 for compute capability 8.0.
extern "C" int dtrain_oldest_architecture() { return std::min({__CUDA_ARCH_LIST__}) / 10; }

extern "C" const dtrain::kernels::DeviceKernels* dtrain_device_kernels() {
  static const dtrain::kernels::CudaKernels kernels;
  return &kernels;
}
