#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// The transforms of Winograd's convolution F(2 x 2, 3 x 3): a 3 x 3 convolution of stride 1 and padding 1 as
/// sixteen matrix products over tiles of 4 x 4 input pixels, which give 2 x 2 output pixels each, with 16
/// multiplications where the definition has 36. Only sums and halves: as exact as the definition, nearly.
/// Source: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
///
/// Images are [images, height, width, channels]. Tiles are numbered row by row, image by image; a block of
/// them transformed is sixteen planes [tiles of the block, channels]. Channels must be a multiple of
/// kWinogradChannels.
struct WinogradImages {
  std::size_t images = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;

  std::size_t tile_rows() const { return (height + 1) / 2; }
  std::size_t tile_columns() const { return (width + 1) / 2; }
  std::size_t tiles() const { return images * tile_rows() * tile_columns(); }
};

inline constexpr std::size_t kWinogradChannels = 8;
inline constexpr std::size_t kWinogradPlanes = 16;

/// Elements from one plane of `rows` x `columns` to the next: a cache line more than it holds, or sixteen
/// planes of a power of two would compete for the same lines of the first-level cache (5 times slower).
constexpr std::size_t winograd_plane(std::size_t rows, std::size_t columns) { return rows * columns + 16; }

/// Tiles [begin, end), of which `first` is the block's first and `block` the number of tiles in a plane of
/// it.
struct TileRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t first = 0;
  std::size_t block = 0;
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

/// Weights [out, 3, 3, in] (channels last) transformed into `u`, sixteen planes [out, in].
template <class T>
void winograd_weight(T* u, const T* weight, std::size_t out, std::size_t in);

/// The weights' gradient [out, 3, 3, in] from that of `u`.
template <class T>
void winograd_weight_gradient(T* dweight, const T* du, std::size_t out, std::size_t in);

#define DTRAIN_DECLARE_WINOGRAD(T)                                                                          \
  extern template void winograd_input<T>(T*, const T*, const WinogradImages&, const TileRange&);            \
  extern template void winograd_output<T>(T*, const T*, const T*, const WinogradImages&, const TileRange&); \
  extern template void winograd_output_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);  \
  extern template void winograd_input_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);   \
  extern template void winograd_weight<T>(T*, const T*, std::size_t, std::size_t);                          \
  extern template void winograd_weight_gradient<T>(T*, const T*, std::size_t, std::size_t);
DTRAIN_DECLARE_WINOGRAD(float)
DTRAIN_DECLARE_WINOGRAD(double)
#undef DTRAIN_DECLARE_WINOGRAD

}  // namespace dtrain::kernels
