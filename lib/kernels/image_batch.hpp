#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/augment.hpp"
#include "kernels/element.hpp"

namespace dtrain::kernels {

/// What makes a network's input of stored images in one pass: crop and flip (augment.hpp), the zeros of the
/// padding being stored values, then (byte / 255 - mean) / deviation as byte * factor + shift of each
/// channel, with channels last.
struct ImageBatch {
  ImageShape shape;              ///< Of each image.
  std::vector<CropAndFlip> how;  ///< One per image; empty: as they are.
  int padding = 0;               ///< On each side, that the crops were drawn for.
  std::vector<float> factor;     ///< [channels]
  std::vector<float> shift;      ///< [channels]

  CropAndFlip how_of(std::size_t image) const {
    return how.empty() ? CropAndFlip{padding, padding, false} : how[image];
  }
};

/// Factors and shifts as normalize_u8() has them. `mean`, `deviation` [channels], or both empty: byte / 255.
void set_normalisation(ImageBatch& batch, std::span<const float> mean, std::span<const float> deviation);

/// Where the pixel (y, x) of the result lies in the stored image, -1 for the padding: an offset within a
/// channel.
DTRAIN_HOST_DEVICE inline int source_of(int y, int x, int height, int width, const CropAndFlip& how,
                                        int padding) {
  const int from_y = y + how.down - padding;
  const int from_x = (how.flip ? width - 1 - x : x) + how.right - padding;
  const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
  return inside ? from_y * width + from_x : -1;
}

/// The value that goes there: product and sum are rounded one by one, as in normalize_u8().
DTRAIN_HOST_DEVICE inline float normalized(std::uint8_t byte, float factor, float shift) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(static_cast<float>(byte), factor), shift);
#else
  return static_cast<float>(byte) * factor + shift;
#endif
}

/// `bytes` [images, channels, height, width] -> `out` [images, height, width, channels]. T: float, Bfloat16
/// or Float16.
template <class T>
void prepare_images(T* out, const std::uint8_t* bytes, std::size_t images, const ImageBatch& batch);

extern template void prepare_images<float>(float*, const std::uint8_t*, std::size_t, const ImageBatch&);
extern template void prepare_images<Bfloat16>(Bfloat16*, const std::uint8_t*, std::size_t, const ImageBatch&);
extern template void prepare_images<Float16>(Float16*, const std::uint8_t*, std::size_t, const ImageBatch&);

}  // namespace dtrain::kernels
