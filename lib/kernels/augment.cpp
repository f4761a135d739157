#include "kernels/augment.hpp"

#include <algorithm>

#include "kernels/philox.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

/// Number in [0, bound) from one word: the upper half of a product instead of a remainder.
int below(std::uint32_t word, int bound) {
  return static_cast<int>((std::uint64_t{word} * static_cast<std::uint64_t>(bound)) >> 32);
}

/// One row of the window: column x of it is column x + shift of the image, zero outside.
template <class T>
DTRAIN_VECTOR_BODY inline void copy_row(T* out, const T* in, int width, int shift, bool flip) {
  const int first = std::clamp(-shift, 0, width);  // columns [first, last) come from the image
  const int last = std::clamp(width - shift, first, width);
  if (!flip) {
    for (int x = 0; x < first; ++x) out[x] = T{0};
    for (int x = first; x < last; ++x) out[x] = in[x + shift];
    for (int x = last; x < width; ++x) out[x] = T{0};
  } else {
    for (int x = 0; x < width - last; ++x) out[x] = T{0};
    for (int x = width - last; x < width - first; ++x) out[x] = in[width - 1 - x + shift];
    for (int x = width - first; x < width; ++x) out[x] = T{0};
  }
}

template <class T>
DTRAIN_VECTOR_BODY inline void window_of(T* out, const T* in, const ImageShape& shape, const CropAndFlip& how,
                                         int padding) {
  const int height = static_cast<int>(shape.height);
  const int width = static_cast<int>(shape.width);
  const int lower = how.down - padding;
  for (std::size_t channel = 0; channel < shape.channels; ++channel) {
    for (int y = 0; y < height; ++y, out += width) {
      if (y + lower < 0 || y + lower >= height) {
        std::fill_n(out, width, T{0});
      } else {
        copy_row(out, in + (y + lower) * width, width, how.right - padding, how.flip);
      }
    }
    in += height * width;
  }
}

}  // namespace

CropAndFlip crop_and_flip_of(std::uint64_t seed, std::uint32_t epoch, std::int64_t sample, int padding,
                             Flips flips) {
  const auto id = static_cast<std::uint64_t>(sample);
  const auto words = philox_block({.seed = seed,
                                   .purpose = Purpose::augmentation,
                                   .major = epoch,
                                   .minor = static_cast<std::uint32_t>(id),
                                   .stream = stream_of("crop_and_flip")},
                                  id >> 32);
  return {.down = below(words[0], 2 * padding + 1),
          .right = below(words[1], 2 * padding + 1),
          .flip = flips == Flips::at_random && (words[2] >> 31) != 0};
}

template <class T>
void crop_and_flip(T* out, const T* in, const ImageShape& shape, std::span<const std::int64_t> samples,
                   std::uint64_t seed, std::uint32_t epoch, int padding, Flips flips) {
  const std::size_t image = shape.channels * shape.height * shape.width;
  for (const std::int64_t sample : samples) {
    const CropAndFlip how = crop_and_flip_of(seed, epoch, sample, padding, flips);
    with_avx2([&]() DTRAIN_VECTOR_BODY { window_of(out, in, shape, how, padding); });
    in += image;
    out += image;
  }
}

template void crop_and_flip<std::uint8_t>(std::uint8_t*, const std::uint8_t*, const ImageShape&,
                                          std::span<const std::int64_t>, std::uint64_t, std::uint32_t, int,
                                          Flips);
template void crop_and_flip<float>(float*, const float*, const ImageShape&, std::span<const std::int64_t>,
                                   std::uint64_t, std::uint32_t, int, Flips);

}  // namespace dtrain::kernels
