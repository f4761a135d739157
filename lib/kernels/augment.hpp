#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::kernels {

/// Which random crop and flip an image gets: a pure function of seed, epoch and the sample's id.
struct CropAndFlip {
  int down = 0;       ///< Rows that the crop lies below the padded image's upper edge, in [0, 2 padding].
  int right = 0;      ///< Columns from its left edge, the same.
  bool flip = false;  ///< Left and right exchanged, after the crop.
};
/// Which of the two an image may get.
enum class Flips { never, at_random };
CropAndFlip crop_and_flip_of(std::uint64_t seed, std::uint32_t epoch, std::int64_t sample, int padding,
                             Flips flips = Flips::at_random);

/// Images as they lie in memory: [samples, channels, height, width].
struct ImageShape {
  std::size_t channels = 1;
  std::size_t height = 1;
  std::size_t width = 1;
};

/// Pads each image with `padding` zeros on every side, cuts a window of the old size from a random place and
/// exchanges left and right in half of the cases, unless `flips` says never. `samples`: their ids, one per
/// image; `out` and `in` must not overlap. The zeros are of the stored values, before any normalisation.
/// Source: He et al., "Deep residual learning for image recognition", section 4.2 (2016), whose images are 32
/// x 32 padded by 4.
template <class T>
void crop_and_flip(T* out, const T* in, const ImageShape& shape, std::span<const std::int64_t> samples,
                   std::uint64_t seed, std::uint32_t epoch, int padding, Flips flips = Flips::at_random);

extern template void crop_and_flip<std::uint8_t>(std::uint8_t*, const std::uint8_t*, const ImageShape&,
                                                 std::span<const std::int64_t>, std::uint64_t, std::uint32_t,
                                                 int, Flips);
extern template void crop_and_flip<float>(float*, const float*, const ImageShape&,
                                          std::span<const std::int64_t>, std::uint64_t, std::uint32_t, int,
                                          Flips);

}  // namespace dtrain::kernels
