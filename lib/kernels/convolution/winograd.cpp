#include "kernels/convolution/winograd.hpp"

#include <array>
#include <vector>

#include "kernels/convolution/winograd_tile.hpp"
#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

/// Where a tile lies in its image; its input window begins a row and a column earlier.
struct Place {
  std::size_t image = 0;
  std::size_t row = 0;  // of the tile's first output pixel
  std::size_t column = 0;
};

template <std::size_t M>
Place place_of(std::size_t tile, const WinogradImages& size) {
  const std::size_t per_image = size.tile_rows() * size.tile_columns();
  const std::size_t within = tile % per_image;
  return {tile / per_image, within / size.tile_columns() * M, within % size.tile_columns() * M};
}

/// Addresses of the pixels of a tile's window, `outside` for those beyond the image.
template <std::size_t M, class T>
std::array<T*, (M + 2) * (M + 2)> window(T* images, T* outside, const Place& place,
                                         const WinogradImages& size) {
  std::array<T*, (M + 2) * (M + 2)> at{};
  for (std::size_t i = 0; i < M + 2; ++i) {
    for (std::size_t j = 0; j < M + 2; ++j) {
      const std::size_t row = place.row + i;  // one more than the pixel's
      const std::size_t column = place.column + j;
      const bool inside = row >= 1 && row <= size.height && column >= 1 && column <= size.width;
      at[i * (M + 2) + j] =
          inside ? images + ((place.image * size.height + row - 1) * size.width + column - 1) * size.channels
                 : outside;
    }
  }
  return at;
}

/// Addresses of the output pixels of a tile.
template <std::size_t M, class T>
std::array<T*, M * M> outputs(T* images, T* outside, const Place& place, const WinogradImages& size) {
  std::array<T*, M * M> at{};
  for (std::size_t i = 0; i < M; ++i) {
    for (std::size_t j = 0; j < M; ++j) {
      const std::size_t row = place.row + i;
      const std::size_t column = place.column + j;
      const bool inside = row < size.height && column < size.width;
      at[i * M + j] = inside
                          ? images + ((place.image * size.height + row) * size.width + column) * size.channels
                          : outside;
    }
  }
  return at;
}

template <std::size_t M>
struct Outputs {
  static constexpr std::size_t kOutputs = M;
  static constexpr std::size_t kInputs = M + 2;
};

/// Calls `body(set, outputs)` in code for the processor and the tiles.
template <class Body>
void with_tiles(std::size_t outputs, const Body& body) {
  with_products([&](auto set) DTRAIN_VECTOR_BODY {
    if (outputs == 4) {
      body(set, Outputs<4>());
    } else {
      body(set, Outputs<2>());
    }
  });
}

/// Calls work.operator()<vector>(first channel) for all channels, by narrower vectors for a remainder.
template <class T, class Set, class Work>
DTRAIN_VECTOR_BODY inline void over_channels(std::size_t channels, const Work& work) {
  using Wide = typename VectorOf<T, Set::kBytes>::Type;
  constexpr std::size_t kWide = sizeof(Wide) / sizeof(T);
  std::size_t c = 0;
  for (; c + kWide <= channels; c += kWide) work.template operator()<Wide>(c);
  for (; c < channels; c += Lanes<T>::kWidth) work.template operator()<typename Lanes<T>::Vector>(c);
}

/// A transform in both dimensions, first of columns: `from(number, i, j)` gives the `Given` x `Given`
/// numbers, `to(number, i, j)` takes the `Left` x `Left` that are left.
template <class V, auto Transform, std::size_t Given, std::size_t Left, class From, class To>
DTRAIN_VECTOR_BODY inline void in_both_dims(const From& from, const To& to) {
  constexpr std::size_t kMost = Given > Left ? Given : Left;
  V d[kMost * kMost];
#pragma GCC unroll 6
  for (std::size_t j = 0; j < Given; ++j) {
#pragma GCC unroll 6
    for (std::size_t i = 0; i < Given; ++i) from(d[kMost * i + j], i, j);
    Transform(d + j, kMost);
  }
#pragma GCC unroll 6
  for (std::size_t i = 0; i < Left; ++i) {
    Transform(d + kMost * i, 1);
#pragma GCC unroll 6
    for (std::size_t j = 0; j < Left; ++j) to(d[kMost * i + j], i, j);
  }
}

}  // namespace

template <class T>
void winograd_input(T* v, const T* x, const WinogradImages& size, const TileRange& tiles) {
  const std::vector<T> zeros(size.channels);
  const T* outside = zeros.data();
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto from = window<kM>(x, outside, place_of<kM>(tile, size), size);
      T* to = v + (tile - tiles.first) * size.channels;
      over_channels<T, decltype(set)>(size.channels, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        in_both_dims<V, Tile::input, kIn, kIn>(
            [&](V& d, std::size_t i, std::size_t j) DTRAIN_VECTOR_BODY { load(d, from[kIn * i + j] + c); },
            [&](const V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { store(to + (kIn * i + j) * plane + c, d); });
      });
    }
  });
}

template <class T>
void winograd_output(T* y, const T* m, const T* bias, const WinogradImages& size, const TileRange& tiles) {
  std::vector<T> beyond(size.channels);
  const std::vector<T> zeros(size.channels);
  T* outside = beyond.data();
  const T* shift = bias != nullptr ? bias : zeros.data();
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto to = outputs<kM>(y, outside, place_of<kM>(tile, size), size);
      const T* from = m + (tile - tiles.first) * size.channels;
      over_channels<T, decltype(set)>(size.channels, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        V b;
        load(b, shift + c);
        in_both_dims<V, Tile::output, kIn, kM>(
            [&](V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { load(d, from + (kIn * i + j) * plane + c); },
            [&](const V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { store(to[kM * i + j] + c, d + b); });
      });
    }
  });
}

template <class T>
void winograd_output_gradient(T* dm, const T* dy, const WinogradImages& size, const TileRange& tiles) {
  const std::vector<T> zeros(size.channels);
  const T* outside = zeros.data();
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto from = outputs<kM>(dy, outside, place_of<kM>(tile, size), size);
      T* to = dm + (tile - tiles.first) * size.channels;
      over_channels<T, decltype(set)>(size.channels, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        in_both_dims<V, Tile::output_gradient, kM, kIn>(
            [&](V& d, std::size_t i, std::size_t j) DTRAIN_VECTOR_BODY { load(d, from[kM * i + j] + c); },
            [&](const V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { store(to + (kIn * i + j) * plane + c, d); });
      });
    }
  });
}

template <class T>
void winograd_input_gradient(T* dx, const T* dv, const WinogradImages& size, const TileRange& tiles) {
  std::vector<T> beyond(size.channels);
  T* outside = beyond.data();
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto to = window<kM>(dx, outside, place_of<kM>(tile, size), size);
      const T* from = dv + (tile - tiles.first) * size.channels;
      over_channels<T, decltype(set)>(size.channels, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        in_both_dims<V, Tile::input_gradient, kIn, kIn>(
            [&](V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { load(d, from + (kIn * i + j) * plane + c); },
            [&](const V& d, std::size_t i, std::size_t j) DTRAIN_VECTOR_BODY {
              V sum;
              load(sum, to[kIn * i + j] + c);
              store(to[kIn * i + j] + c, sum + d);
            });
      });
    }
  });
}

template <class T>
void winograd_weight(T* u, const T* weight, const WinogradWeights& size) {
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(size.out, size.in);
    for (std::size_t k = 0; k < size.out; ++k) {
      over_channels<T, decltype(set)>(size.in, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        in_both_dims<V, Tile::weight, 3, kIn>(
            [&](V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { load(d, weight + (k * 9 + 3 * i + j) * size.in + c); },
            [&](const V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { store(u + (kIn * i + j) * plane + k * size.in + c, d); });
      });
    }
  });
}

template <class T>
void winograd_weight_gradient(T* dweight, const T* du, const WinogradWeights& size) {
  with_tiles(size.outputs, [&](auto set, auto of) DTRAIN_VECTOR_BODY {
    constexpr std::size_t kM = decltype(of)::kOutputs;
    constexpr std::size_t kIn = decltype(of)::kInputs;
    const std::size_t plane = winograd_plane(size.out, size.in);
    for (std::size_t k = 0; k < size.out; ++k) {
      over_channels<T, decltype(set)>(size.in, [&]<class V>(std::size_t c) DTRAIN_VECTOR_BODY {
        using Tile = WinogradTile<V, T, kM>;
        in_both_dims<V, Tile::weight_gradient, kIn, 3>(
            [&](V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { load(d, du + (kIn * i + j) * plane + k * size.in + c); },
            [&](const V& d, std::size_t i, std::size_t j)
                DTRAIN_VECTOR_BODY { store(dweight + (k * 9 + 3 * i + j) * size.in + c, d); });
      });
    }
  });
}

#define DTRAIN_DEFINE_WINOGRAD(T)                                                                    \
  template void winograd_input<T>(T*, const T*, const WinogradImages&, const TileRange&);            \
  template void winograd_output<T>(T*, const T*, const T*, const WinogradImages&, const TileRange&); \
  template void winograd_output_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);  \
  template void winograd_input_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);   \
  template void winograd_weight<T>(T*, const T*, const WinogradWeights&);                            \
  template void winograd_weight_gradient<T>(T*, const T*, const WinogradWeights&);
DTRAIN_DEFINE_WINOGRAD(float)
DTRAIN_DEFINE_WINOGRAD(double)
#undef DTRAIN_DEFINE_WINOGRAD

}  // namespace dtrain::kernels
