#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// The transforms of Winograd's convolutions F(m x m, 3 x 3): a 3 x 3 convolution of stride 1 and padding 1
/// as (m + 2)^2 matrix products over tiles of (m + 2)^2 input pixels, which give m x m output pixels each.
/// With m = 2 there are 16 multiplications where the definition has 36 for as many outputs, with m = 4 36
/// instead of 144. In float both are about as exact as the definition (winograd_tile.hpp has the points).
/// Source: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
///
/// Images are [images, height, width, channels]. Tiles are numbered row by row, image by image; a block of
/// them transformed is planes() planes [tiles of the block, channels]. Channels must be a multiple of
/// kWinogradChannels.
struct WinogradImages {
  std::size_t images = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  std::size_t outputs = 2;  ///< m, 2 or 4.

  std::size_t tile_rows() const { return (height + outputs - 1) / outputs; }
  std::size_t tile_columns() const { return (width + outputs - 1) / outputs; }
  std::size_t tiles() const { return images * tile_rows() * tile_columns(); }
};

inline constexpr std::size_t kWinogradChannels = 8;

constexpr std::size_t winograd_planes(std::size_t outputs) { return (outputs + 2) * (outputs + 2); }

/// The m with fewer multiplications for images of this size.
constexpr std::size_t winograd_outputs(std::size_t height, std::size_t width) {
  const auto multiplications = [=](std::size_t m) {
    return ((height + m - 1) / m) * ((width + m - 1) / m) * winograd_planes(m);
  };
  return multiplications(4) < multiplications(2) ? 4 : 2;
}

/// Elements from one plane of `rows` x `columns` to the next: a cache line more than it holds, or planes of
/// a power of two would compete for the same lines of the first-level cache (5 times slower).
constexpr std::size_t winograd_plane(std::size_t rows, std::size_t columns) { return rows * columns + 16; }

/// Tiles [begin, end), of which `first` is the block's first and `block` the number of tiles in a plane of
/// it.
struct TileRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t first = 0;
  std::size_t block = 0;
};

/// Extents of the weights' matrices, and the m of their tiles.
struct WinogradWeights {
  std::size_t out = 0;
  std::size_t in = 0;
  std::size_t outputs = 2;
};

/// Input tiles of `x`, zero outside the image, transformed into `v`.
template <class T>
void winograd_input(T* v, const T* x, const WinogradImages& size, const TileRange& tiles);

/// Output pixels from the products `m`, plus `bias` [channels] unless null. `size` is the output's.
template <class T>
void winograd_output(T* y, const T* m, const T* bias, const WinogradImages& size, const TileRange& tiles);

/// The gradient of `m` from that of the output, `dy`.
template <class T>
void winograd_output_gradient(T* dm, const T* dy, const WinogradImages& size, const TileRange& tiles);

/// Adds the input's gradient from that of `v`. Neighbouring tiles share pixels: one thread per image.
template <class T>
void winograd_input_gradient(T* dx, const T* dv, const WinogradImages& size, const TileRange& tiles);

/// Weights [out, 3, 3, in] (channels last) transformed into `u`, planes [out, in].
template <class T>
void winograd_weight(T* u, const T* weight, const WinogradWeights& size);

/// The weights' gradient [out, 3, 3, in] from that of `u`.
template <class T>
void winograd_weight_gradient(T* dweight, const T* du, const WinogradWeights& size);

#define DTRAIN_DECLARE_WINOGRAD(T)                                                                          \
  extern template void winograd_input<T>(T*, const T*, const WinogradImages&, const TileRange&);            \
  extern template void winograd_output<T>(T*, const T*, const T*, const WinogradImages&, const TileRange&); \
  extern template void winograd_output_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);  \
  extern template void winograd_input_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);   \
  extern template void winograd_weight<T>(T*, const T*, const WinogradWeights&);                            \
  extern template void winograd_weight_gradient<T>(T*, const T*, const WinogradWeights&);
DTRAIN_DECLARE_WINOGRAD(float)
DTRAIN_DECLARE_WINOGRAD(double)
#undef DTRAIN_DECLARE_WINOGRAD

}  // namespace dtrain::kernels
