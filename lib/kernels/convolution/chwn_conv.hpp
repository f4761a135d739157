#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// Convolutions of few channels, for images that lie with the image innermost: [channels, height, width,
/// images] (CHWN). Every pixel of a channel then is a whole vector of equal work, however few channels there
/// are, and a row of pixels is one long vector. Products of matrices, the usual way, leave most of a vector
/// idle where there are six or sixteen channels.
///
/// The large side [large_channels, height, width, images] has a window of kernel x kernel pixels for each
/// pixel of the small side [small_channels, rows, columns, images]; windows move by `stride` and begin
/// `padding` pixels outside. A convolution goes from large to small, a transposed one from small to large.
/// Each sum is made in one order, whatever the number of images, threads and rows at once.
struct ChwnConv {
  std::size_t images = 0;
  std::size_t large_channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t small_channels = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t kernel = 0;
  std::size_t stride = 1;
  std::size_t padding = 0;
};

/// Elements from one weight [small channel, large channel, row, column] to the next of each kind.
struct WeightStrides {
  std::size_t small = 0;
  std::size_t large = 0;
  std::size_t row = 0;
  std::size_t column = 0;
};

/// Rows or channels [begin, end): a thread's part.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Rows `part` of the small side: sums over windows of the large one, plus `bias` [small_channels] or null.
template <class T>
void chwn_to_small(T* small, const T* large, const T* weight, const WeightStrides& strides, const T* bias,
                   const ChwnConv& size, const Span& part);

/// Rows `part` of the large side: the adjoint, plus `bias` [large_channels] or null. Writes every pixel.
template <class T>
void chwn_to_large(T* large, const T* small, const T* weight, const WeightStrides& strides, const T* bias,
                   const ChwnConv& size, const Span& part);

/// The weight's gradient, of the large side's channels `part`, from a value of one side and a gradient of the
/// other.
template <class T>
void chwn_weight_gradient(T* dweight, const WeightStrides& strides, const T* small, const T* large,
                          const ChwnConv& size, const Span& part);

#define DTRAIN_DECLARE_CHWN_CONV(T)                                                             \
  extern template void chwn_to_small<T>(T*, const T*, const T*, const WeightStrides&, const T*, \
                                        const ChwnConv&, const Span&);                          \
  extern template void chwn_to_large<T>(T*, const T*, const T*, const WeightStrides&, const T*, \
                                        const ChwnConv&, const Span&);                          \
  extern template void chwn_weight_gradient<T>(T*, const WeightStrides&, const T*, const T*,    \
                                               const ChwnConv&, const Span&);
DTRAIN_DECLARE_CHWN_CONV(float)
DTRAIN_DECLARE_CHWN_CONV(double)
#undef DTRAIN_DECLARE_CHWN_CONV

}  // namespace dtrain::kernels
