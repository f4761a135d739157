#include "kernels/convolution/chwn_conv.hpp"

#include <algorithm>
#include <vector>

#include "kernels/convolution/chwn_taps.hpp"
#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

/// How taps follow each other in one direction of the convolution.
struct ToSmall {
  static constexpr Offset kStep = 1;
  static Taps taps(std::size_t place, std::size_t extent, const ChwnConv& size) {
    return taps_on_large(place, extent, size);
  }
  static std::size_t weight_step(const ChwnConv& /*size*/) { return 1; }
};
struct ToLarge {
  static constexpr Offset kStep = -1;
  static Taps taps(std::size_t place, std::size_t extent, const ChwnConv& size) {
    return taps_on_small(place, extent, size);
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
  for (; at + kChwnVectors<Set> * kWidth <= length; at += kChwnVectors<Set> * kWidth)
    sum_vectors<Channels, kChwnVectors<Set>, V>(to + at, to_channel, walk, static_cast<Offset>(at), bias);
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
        if (!next.same_weights(columns)) break;
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

#define DTRAIN_DEFINE_CHWN_CONV(T)                                                                        \
  template void chwn_to_small<T>(T*, const T*, const T*, const WeightStrides&, const T*, const ChwnConv&, \
                                 const Span&);                                                            \
  template void chwn_to_large<T>(T*, const T*, const T*, const WeightStrides&, const T*, const ChwnConv&, \
                                 const Span&);
DTRAIN_DEFINE_CHWN_CONV(float)
DTRAIN_DEFINE_CHWN_CONV(double)
#undef DTRAIN_DEFINE_CHWN_CONV

}  // namespace dtrain::kernels
