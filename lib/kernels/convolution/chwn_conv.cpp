#include "kernels/convolution/chwn_conv.hpp"

#include <algorithm>
#include <vector>

#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

using Offset = std::ptrdiff_t;

constexpr std::size_t kChannels = 6;  // in a block

/// Accumulators of kChannels x this many vectors fill the registers, but for those of the factors.
template <class Set>
constexpr std::size_t kVectors = Set::kBytes == Avx512::kBytes ? 4 : 2;

/// How many of the channels that are left the next block has.
std::size_t block_of(std::size_t left) { return left >= kChannels ? kChannels : left == 5 ? 3 : left; }

/// The taps of a kernel that reach inside the other side, along one dimension, for one place of the side that
/// is written: `count` of them, of which the first reads the other side at `from` with the kernel's `weight`.
struct Taps {
  std::size_t weight = 0;
  std::size_t count = 0;
  Offset from = 0;
  bool operator==(const Taps&) const = default;
};

/// How taps follow each other in one direction of the convolution.
struct ToSmall {
  static constexpr Offset kStep = 1;
  static Taps taps(std::size_t place, std::size_t extent, const ChwnConv& size) {
    const auto first = static_cast<Offset>(place * size.stride) - static_cast<Offset>(size.padding);
    const Offset begin = std::max<Offset>(0, -first);
    const Offset end = std::min(static_cast<Offset>(size.kernel), static_cast<Offset>(extent) - first);
    if (end <= begin) return {};
    return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin), first + begin};
  }
  static std::size_t weight_step(const ChwnConv& /*size*/) { return 1; }
};
struct ToLarge {
  static constexpr Offset kStep = -1;
  static Taps taps(std::size_t place, std::size_t extent, const ChwnConv& size) {
    const std::size_t padded = place + size.padding;
    const std::size_t reach = (extent - 1) * size.stride;  // where the small side's last window begins
    const std::size_t least = padded > reach ? padded - reach : 0;
    const std::size_t last = std::min(size.kernel - 1, padded);
    std::size_t tap = padded % size.stride;
    if (tap < least) tap += (least - tap + size.stride - 1) / size.stride * size.stride;
    if (tap > last) return {};
    return {tap, (last - tap) / size.stride + 1, static_cast<Offset>((padded - tap) / size.stride)};
  }
  static std::size_t weight_step(const ChwnConv& size) { return size.stride; }
};

/// Where the sums of a run of pixels, all with the same taps, come from.
template <class T>
struct Walk {
  const T* from = nullptr;  // at the first tap of the first channel
  Offset channel = 0;       // elements from one to the next
  Offset row = 0;
  Offset column = 0;
  std::size_t channels = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  const T* weights = nullptr;  // a block's channels innermost
  std::size_t weight_channel = 0;
  std::size_t weight_row = 0;
  std::size_t weight_column = 0;
};

template <std::size_t Channels, std::size_t Vectors, class V, class T>
DTRAIN_VECTOR_BODY inline void sum_vectors(T* to, std::size_t to_channel, const Walk<T>& walk, Offset shift,
                                           const T* bias) {
  V sums[Channels][Vectors];
#pragma GCC unroll 8
  for (std::size_t c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) sums[c][v] = V{} + bias[c];
  }
  for (std::size_t channel = 0; channel < walk.channels; ++channel) {
    const T* plane = walk.from + static_cast<Offset>(channel) * walk.channel + shift;
    const T* plane_weights = walk.weights + channel * walk.weight_channel;
    for (std::size_t row = 0; row < walk.rows; ++row) {
      const T* x = plane + static_cast<Offset>(row) * walk.row;
      const T* weight = plane_weights + row * walk.weight_row;
      for (std::size_t column = 0; column < walk.columns; ++column) {
        V values[Vectors];
#pragma GCC unroll 8
        for (std::size_t v = 0; v < Vectors; ++v) load(values[v], x + v * (sizeof(V) / sizeof(T)));
#pragma GCC unroll 8
        for (std::size_t c = 0; c < Channels; ++c) {
          const T factor = weight[c];
#pragma GCC unroll 8
          for (std::size_t v = 0; v < Vectors; ++v) sums[c][v] += values[v] * factor;
        }
        x += walk.column;
        weight += walk.weight_column;
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v)
      store(to + c * to_channel + v * (sizeof(V) / sizeof(T)), sums[c][v]);
  }
}

/// `length` elements of each of the block's channels.
template <std::size_t Channels, class Set, class T>
DTRAIN_VECTOR_BODY inline void sum_run(T* to, std::size_t to_channel, const Walk<T>& walk, const T* bias,
                                       std::size_t length) {
  using V = typename VectorOf<T, Set::kBytes>::Type;
  using Half = typename VectorOf<T, Set::kBytes / 2>::Type;
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  std::size_t at = 0;
  for (; at + kVectors<Set> * kWidth <= length; at += kVectors<Set> * kWidth)
    sum_vectors<Channels, kVectors<Set>, V>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
  for (; at + kWidth <= length; at += kWidth)
    sum_vectors<Channels, 1, V>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
  if (at < length && length >= kWidth) {  // the last vector once more, as far as it reaches
    at = length - kWidth;
    sum_vectors<Channels, 1, V>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
    return;
  }
  for (; at + kWidth / 2 <= length; at += kWidth / 2)
    sum_vectors<Channels, 1, Half>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
  for (; at < length; ++at)
    sum_vectors<Channels, 1, T>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
}

/// One side of a convolution.
template <class T>
struct Side {
  T* data = nullptr;
  std::size_t channels = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t row(std::size_t images) const { return columns * images; }
  std::size_t plane(std::size_t images) const { return rows * row(images); }
};

/// A block's weights [from's channels, kernel, kernel, block].
template <class T>
struct Block {
  std::size_t first = 0;
  std::size_t channels = 0;
  std::vector<T> weights;
  std::vector<T> bias;
};

/// Rows `part` of `to`, for one block of its channels.
template <std::size_t Channels, class Direction, class Set, class T>
DTRAIN_VECTOR_BODY inline void sum_rows(const Side<T>& to, const Side<const T>& from, const Block<T>& block,
                                        const ChwnConv& size, const Span& part) {
  const std::size_t n = size.images;
  const std::size_t step = Direction::weight_step(size);
  Walk<T> walk;
  walk.channel = static_cast<Offset>(from.plane(n));
  walk.row = Direction::kStep * static_cast<Offset>(from.row(n));
  walk.column = Direction::kStep * static_cast<Offset>(n);
  walk.channels = from.channels;
  walk.weight_channel = size.kernel * size.kernel * Channels;
  walk.weight_row = step * size.kernel * Channels;
  walk.weight_column = step * Channels;
  for (std::size_t row = part.begin; row < part.end; ++row) {
    const Taps rows = Direction::taps(row, from.rows, size);
    walk.rows = rows.count;
    std::size_t column = 0;
    while (column < to.columns) {
      const Taps columns = Direction::taps(column, from.columns, size);
      std::size_t end = column + 1;
      while (size.stride == 1 && end < to.columns) {  // neighbours with the same taps are one run
        const Taps next = Direction::taps(end, from.columns, size);
        if (next.weight != columns.weight || next.count != columns.count) break;
        ++end;
      }
      walk.columns = columns.count;
      walk.from =
          from.data + rows.from * static_cast<Offset>(from.row(n)) + columns.from * static_cast<Offset>(n);
      walk.weights = block.weights.data() + (rows.weight * size.kernel + columns.weight) * Channels;
      T* start = to.data + block.first * to.plane(n) + row * to.row(n) + column * n;
      sum_run<Channels, Set>(start, to.plane(n), walk, block.bias.data(), (end - column) * n);
      column = end;
    }
  }
}

template <class Direction, class T>
void sum_side(const Side<T>& to, const Side<const T>& from, const T* weight, std::size_t to_stride,
              std::size_t from_stride, const WeightStrides& strides, const T* bias, const ChwnConv& size,
              const Span& part) {
  const std::size_t taps = size.kernel * size.kernel;
  Block<T> block;
  for (std::size_t first = 0; first < to.channels; first += block.channels) {
    const std::size_t left = to.channels - first;
    block.first = first;
    block.channels = block_of(left);
    block.weights.resize(from.channels * taps * block.channels);
    block.bias.assign(block.channels, T{0});
    T* packed = block.weights.data();
    for (std::size_t channel = 0; channel < from.channels; ++channel) {
      for (std::size_t row = 0; row < size.kernel; ++row) {
        for (std::size_t column = 0; column < size.kernel; ++column) {
          const T* at = weight + channel * from_stride + row * strides.row + column * strides.column;
          for (std::size_t c = 0; c < block.channels; ++c) *packed++ = at[(first + c) * to_stride];
        }
      }
    }
    if (bias != nullptr) std::copy_n(bias + first, block.channels, block.bias.begin());
    with_products([&](auto set) DTRAIN_VECTOR_BODY {
      using Set = decltype(set);
      with_count(block.channels, [&]<std::size_t Channels>() DTRAIN_VECTOR_BODY {
        sum_rows<Channels, Direction, Set>(to, from, block, size, part);
      });
    });
  }
}

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
  const T* large = nullptr;  // what its window's column 0 reads, though that may lie outside
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
    const T* const large = pixels.large + (row * size.stride * size.width + column) * n;
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
    const std::size_t blocks = (end - column + kVectors<Set> - 1) / kVectors<Set>;
    const std::size_t columns = (end - column + blocks - 1) / blocks;
    if constexpr (kVectors<Set> == 4) {
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
    const Taps columns = ToSmall::taps(pixel, size.width, size);
    std::size_t end = pixel + 1;
    while (end < size.columns && end - pixel < at_once) {
      const Taps next = ToSmall::taps(end, size.width, size);
      if (next.weight != columns.weight || next.count != columns.count) break;
      ++end;
    }
    for (std::size_t tap = 0; tap < size.kernel; ++tap) {
      const Span inside = rows_inside(tap, rows, size);
      const auto row =
          static_cast<Offset>(inside.begin * size.stride + tap) - static_cast<Offset>(size.padding);
      const Offset from =
          row * static_cast<Offset>(size.width) + columns.from - static_cast<Offset>(columns.weight);
      const Pixels<T> pixels{small + (inside.begin * size.columns + pixel) * n,
                             plane + from * static_cast<Offset>(n), inside.end - inside.begin, end - pixel};
      if (pixels.rows == 0) continue;
      outer_columns<Channels, Set>(sums + tap * size.kernel * size.small_channels * kWidth, pixels,
                                   columns.weight, columns.weight + columns.count, size);
    }
    pixel = end;
  }
}

}  // namespace

template <class T>
void chwn_to_small(T* small, const T* large, const T* weight, const WeightStrides& strides, const T* bias,
                   const ChwnConv& size, const Span& part) {
  const Side<T> to{small, size.small_channels, size.rows, size.columns};
  const Side<const T> from{large, size.large_channels, size.height, size.width};
  sum_side<ToSmall>(to, from, weight, strides.small, strides.large, strides, bias, size, part);
}

template <class T>
void chwn_to_large(T* large, const T* small, const T* weight, const WeightStrides& strides, const T* bias,
                   const ChwnConv& size, const Span& part) {
  const Side<T> to{large, size.large_channels, size.height, size.width};
  const Side<const T> from{small, size.small_channels, size.rows, size.columns};
  sum_side<ToLarge>(to, from, weight, strides.large, strides.small, strides, bias, size, part);
}

template <class T>
void chwn_weight_gradient(T* dweight, const WeightStrides& strides, const T* small, const T* large,
                          const ChwnConv& size, const Span& part) {
  const std::size_t n = size.images;
  with_products([&](auto set) DTRAIN_VECTOR_BODY {
    using Set = decltype(set);
    constexpr std::size_t kWidth = Set::kBytes / sizeof(T);
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
            dweight[c * strides.small + channel * strides.large + row * strides.row +
                    column * strides.column] = total;
          }
        }
      }
    }
  });
}

#define DTRAIN_DEFINE_CHWN_CONV(T)                                                                        \
  template void chwn_to_small<T>(T*, const T*, const T*, const WeightStrides&, const T*, const ChwnConv&, \
                                 const Span&);                                                            \
  template void chwn_to_large<T>(T*, const T*, const T*, const WeightStrides&, const T*, const ChwnConv&, \
                                 const Span&);                                                            \
  template void chwn_weight_gradient<T>(T*, const WeightStrides&, const T*, const T*, const ChwnConv&,    \
                                        const Span&);
DTRAIN_DEFINE_CHWN_CONV(float)
DTRAIN_DEFINE_CHWN_CONV(double)
#undef DTRAIN_DEFINE_CHWN_CONV

}  // namespace dtrain::kernels
