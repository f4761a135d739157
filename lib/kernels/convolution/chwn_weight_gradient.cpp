#include <algorithm>
#include <vector>

#include "kernels/convolution/chwn_conv.hpp"
#include "kernels/convolution/chwn_taps.hpp"
#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

/// Adds the products of some channels of the small side with some columns of a window, over `length`
/// neighbours, to vectors of partial sums.
template <std::size_t Channels, std::size_t Columns, class V, class T>
DTRAIN_VECTOR_BODY inline void outer_run(V (&sums)[Channels][Columns], const T* small,
                                         std::size_t small_channel, const T* large, std::size_t large_column,
                                         std::size_t length) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  const auto add = [&](const T* lefts, std::size_t left_stride, const T* rights_at, std::size_t right_stride)
                       DTRAIN_VECTOR_BODY {
                         V rights[Columns];
#pragma GCC unroll 8
                         for (std::size_t t = 0; t < Columns; ++t)
                           load(rights[t], rights_at + t * right_stride);
#pragma GCC unroll 8
                         for (std::size_t c = 0; c < Channels; ++c) {
                           V left;
                           load(left, lefts + c * left_stride);
#pragma GCC unroll 8
                           for (std::size_t t = 0; t < Columns; ++t) sums[c][t] += left * rights[t];
                         }
                       };
  std::size_t at = 0;
  for (; at + kWidth <= length; at += kWidth) add(small + at, small_channel, large + at, large_column);
  if (at == length) return;
  T lefts[Channels * kWidth] = {};
  T rights[Columns * kWidth] = {};
  for (std::size_t c = 0; c < Channels; ++c)
    std::copy_n(small + c * small_channel + at, length - at, lefts + c * kWidth);
  for (std::size_t t = 0; t < Columns; ++t)
    std::copy_n(large + t * large_column + at, length - at, rights + t * kWidth);
  add(lefts, kWidth, rights, kWidth);
}

/// A rectangle of pixels of the small side, and where it lies.
template <class T>
struct Pixels {
  const T* small = nullptr;  // the first one's, of the block's first channel
  const T* large = nullptr;  // what its window reads with the kernel's column `first`
  std::size_t first = 0;     // the first column that is inside
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// Adds pixels to the partial sums of Channels x Columns weights, `sums` [kernel columns, small channels,
/// width of a vector], from the kernel's `column` on.
template <std::size_t Channels, std::size_t Columns, class V, class T>
DTRAIN_VECTOR_BODY inline void outer_pixels(T* sums, const Pixels<T>& pixels, std::size_t column,
                                            const ChwnConv& size) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  const std::size_t n = size.images;
  const std::size_t small_channel = size.rows * size.columns * n;
  const auto place = [&](std::size_t c, std::size_t t) DTRAIN_VECTOR_BODY {
    return sums + ((column + t) * size.small_channels + c) * kWidth;
  };
  V held[Channels][Columns];
#pragma GCC unroll 8
  for (std::size_t c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Columns; ++t) load(held[c][t], place(c, t));
  }
  const std::size_t at_once = size.stride == 1 ? pixels.columns : 1;
  for (std::size_t row = 0; row < pixels.rows; ++row) {
    const T* const small = pixels.small + row * size.columns * n;
    const T* const large = pixels.large + (row * size.stride * size.width + column - pixels.first) * n;
    for (std::size_t pixel = 0; pixel < pixels.columns; pixel += at_once)
      outer_run(held, small + pixel * n, small_channel, large + pixel * size.stride * n, n, at_once * n);
  }
#pragma GCC unroll 8
  for (std::size_t c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Columns; ++t) store(place(c, t), held[c][t]);
  }
}

/// The same for the kernel's columns [first, end), as many at a time as the registers hold.
template <std::size_t Channels, class Set, class T>
DTRAIN_VECTOR_BODY inline void outer_columns(T* sums, const Pixels<T>& pixels, std::size_t first,
                                             std::size_t end, const ChwnConv& size) {
  using V = typename VectorOf<T, Set::kBytes>::Type;
  std::size_t column = first;
  while (column < end) {
    const std::size_t blocks = (end - column + kChwnVectors<Set> - 1) / kChwnVectors<Set>;
    const std::size_t columns = (end - column + blocks - 1) / blocks;
    if constexpr (kChwnVectors<Set> == 4) {
      if (columns == 4) outer_pixels<Channels, 4, V>(sums, pixels, column, size);
      if (columns == 3) outer_pixels<Channels, 3, V>(sums, pixels, column, size);
    }
    if (columns == 2) outer_pixels<Channels, 2, V>(sums, pixels, column, size);
    if (columns == 1) outer_pixels<Channels, 1, V>(sums, pixels, column, size);
    column += columns;
  }
}

/// Elements of the small side that stay in the first-level cache while all of the kernel passes by.
constexpr std::size_t kSmallElements = 6144;

/// Rows of [begin, end) of the small side whose windows have the kernel's row `tap` inside.
Span rows_inside(std::size_t tap, const Span& rows, const ChwnConv& size) {
  const std::size_t least = tap >= size.padding ? 0 : (size.padding - tap + size.stride - 1) / size.stride;
  const std::size_t reach = size.height + size.padding;
  const std::size_t end = reach <= tap ? 0 : (reach - tap - 1) / size.stride + 1;
  const Span inside{std::max(rows.begin, least), std::min(rows.end, end)};
  return inside.begin < inside.end ? inside : Span{};
}

/// Adds rows of a block of channels of the small side, from `small` on, with one channel of the large side to
/// the partial sums [kernel rows, kernel columns, small channels, width of a vector].
template <std::size_t Channels, class Set, class T>
DTRAIN_VECTOR_BODY inline void outer_rows(T* sums, const T* small, const T* plane, const Span& rows,
                                          const ChwnConv& size) {
  constexpr std::size_t kWidth = Set::kBytes / sizeof(T);
  const std::size_t n = size.images;
  const std::size_t at_once =
      std::max<std::size_t>(1, kSmallElements / (Channels * std::max<std::size_t>(1, n)));
  std::size_t pixel = 0;
  while (pixel < size.columns) {  // those with the same columns inside
    const Taps columns = taps_on_large(pixel, size.width, size);
    std::size_t end = pixel + 1;
    while (end < size.columns && end - pixel < at_once) {
      const Taps next = taps_on_large(end, size.width, size);
      if (!next.same_weights(columns)) break;
      ++end;
    }
    for (std::size_t tap = 0; tap < size.kernel; ++tap) {
      const Span inside = rows_inside(tap, rows, size);
      if (inside.begin == inside.end) continue;
      const std::size_t row = inside.begin * size.stride + tap - size.padding;
      const Pixels<T> pixels{.small = small + (inside.begin * size.columns + pixel) * n,
                             .large = plane + (row * size.width + static_cast<std::size_t>(columns.from)) * n,
                             .first = columns.weight,
                             .rows = inside.end - inside.begin,
                             .columns = end - pixel};
      outer_columns<Channels, Set>(sums + tap * size.kernel * size.small_channels * kWidth, pixels,
                                   columns.weight, columns.weight + columns.count, size);
    }
    pixel = end;
  }
}

/// All of it, by vectors as Set has them.
template <class Set, class T>
DTRAIN_VECTOR_BODY inline void outer_side(T* dweight, const WeightStrides& strides, const T* small,
                                          const T* large, const ChwnConv& size, const Span& part) {
  constexpr std::size_t kWidth = Set::kBytes / sizeof(T);
  const std::size_t n = size.images;
  std::vector<T> sums(size.kernel * size.kernel * size.small_channels * kWidth);
  for (std::size_t channel = part.begin; channel < part.end; ++channel) {
    std::fill(sums.begin(), sums.end(), T{0});
    const T* plane = large + channel * size.height * size.width * n;
    for (std::size_t c = 0; c < size.small_channels;) {
      const std::size_t channels = block_of(size.small_channels - c);
      const std::size_t of_row = std::max<std::size_t>(1, channels * size.columns * n);
      const std::size_t at_once = std::max<std::size_t>(1, kSmallElements / of_row);
      const T* block = small + c * size.rows * size.columns * n;
      with_count(channels, [&]<std::size_t Channels>() DTRAIN_VECTOR_BODY {
        for (std::size_t row = 0; row < size.rows; row += at_once) {
          outer_rows<Channels, Set>(sums.data() + c * kWidth, block, plane,
                                    {row, std::min(row + at_once, size.rows)}, size);
        }
      });
      c += channels;
    }
    const T* partial = sums.data();
    for (std::size_t row = 0; row < size.kernel; ++row) {
      for (std::size_t column = 0; column < size.kernel; ++column) {
        for (std::size_t c = 0; c < size.small_channels; ++c, partial += kWidth) {
          T total = T{0};
          for (std::size_t lane = 0; lane < kWidth; ++lane) total += partial[lane];
          dweight[c * strides.small + channel * strides.large + row * strides.row + column * strides.column] =
              total;
        }
      }
    }
  }
}

/// Whether pixels of so many images, which are no neighbours, leave no remainder of half a vector, but of a
/// whole one.
template <class Set, class T>
constexpr bool fills_halves(const ChwnConv& size) {
  constexpr std::size_t kWidth = Set::kBytes / sizeof(T);
  return size.stride > 1 && size.images % kWidth != 0 && size.images % (kWidth / 2) == 0;
}

}  // namespace

template <class T>
void chwn_weight_gradient(T* dweight, const WeightStrides& strides, const T* small, const T* large,
                          const ChwnConv& size, const Span& part) {
  with_products([&](auto set) DTRAIN_VECTOR_BODY {
    using Set = decltype(set);
    if constexpr (Set::kBytes == Avx512::kBytes) {
      if (fills_halves<Set, T>(size)) return outer_side<Avx2>(dweight, strides, small, large, size, part);
    }
    outer_side<Set>(dweight, strides, small, large, size, part);
  });
}

template void chwn_weight_gradient<float>(float*, const WeightStrides&, const float*, const float*,
                                          const ChwnConv&, const Span&);
template void chwn_weight_gradient<double>(double*, const WeightStrides&, const double*, const double*,
                                           const ChwnConv&, const Span&);

}  // namespace dtrain::kernels
