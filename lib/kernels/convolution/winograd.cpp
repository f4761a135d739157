#include "kernels/convolution/winograd.hpp"

#include <array>
#include <vector>

#include "kernels/lanes.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {
namespace {

/// Where a tile lies in its image; its input window begins a row and a column earlier.
struct Place {
  std::size_t image = 0;
  std::size_t row = 0;  // of the tile's first output pixel
  std::size_t column = 0;
};

Place place_of(std::size_t tile, const WinogradImages& size) {
  const std::size_t per_image = size.tile_rows() * size.tile_columns();
  const std::size_t within = tile % per_image;
  return {tile / per_image, within / size.tile_columns() * 2, within % size.tile_columns() * 2};
}

/// Addresses of the 4 x 4 pixels of a tile's window, `outside` for those beyond the image.
template <class T>
std::array<T*, 16> window(T* images, T* outside, const Place& place, const WinogradImages& size) {
  std::array<T*, 16> at{};
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t row = place.row + i;  // one more than the pixel's
      const std::size_t column = place.column + j;
      const bool inside = row >= 1 && row <= size.height && column >= 1 && column <= size.width;
      at[i * 4 + j] =
          inside ? images + ((place.image * size.height + row - 1) * size.width + column - 1) * size.channels
                 : outside;
    }
  }
  return at;
}

/// Addresses of the 2 x 2 output pixels of a tile.
template <class T>
std::array<T*, 4> outputs(T* images, T* outside, const Place& place, const WinogradImages& size) {
  std::array<T*, 4> at{};
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      const std::size_t row = place.row + i;
      const std::size_t column = place.column + j;
      const bool inside = row < size.height && column < size.width;
      at[i * 2 + j] = inside
                          ? images + ((place.image * size.height + row) * size.width + column) * size.channels
                          : outside;
    }
  }
  return at;
}

// One dimension of each transform; `s` is the distance between the elements.

/// B^T: four to four.
template <class V>
DTRAIN_VECTOR_BODY inline void input_1d(V* d, std::size_t s) {
  const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
  d[0] = d0 - d2;
  d[s] = d1 + d2;
  d[2 * s] = d2 - d1;
  d[3 * s] = d1 - d3;
}

/// B: its adjoint.
template <class V>
DTRAIN_VECTOR_BODY inline void input_gradient_1d(V* d, std::size_t s) {
  const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
  d[0] = d0;
  d[s] = d1 - d2 + d3;
  d[2 * s] = d1 + d2 - d0;
  d[3 * s] = V{} - d3;
}

/// A^T: four to two.
template <class V>
DTRAIN_VECTOR_BODY inline void output_1d(V* m, std::size_t s) {
  const V m0 = m[0], m1 = m[s], m2 = m[2 * s], m3 = m[3 * s];
  m[0] = m0 + m1 + m2;
  m[s] = m1 - m2 - m3;
}

/// A: two to four.
template <class V>
DTRAIN_VECTOR_BODY inline void output_gradient_1d(V* m, std::size_t s) {
  const V y0 = m[0], y1 = m[s];
  m[s] = y0 + y1;
  m[2 * s] = y0 - y1;
  m[3 * s] = V{} - y1;
}

/// G: three to four.
template <class V>
DTRAIN_VECTOR_BODY inline void weight_1d(V* g, std::size_t s) {
  const V g0 = g[0], g1 = g[s], g2 = g[2 * s];
  const V outer = (g0 + g2) / 2;
  const V inner = g1 / 2;
  g[s] = outer + inner;
  g[2 * s] = outer - inner;
  g[3 * s] = g2;
}

/// G^T: four to three.
template <class V>
DTRAIN_VECTOR_BODY inline void weight_gradient_1d(V* g, std::size_t s) {
  const V u0 = g[0], u1 = g[s], u2 = g[2 * s], u3 = g[3 * s];
  const V sum = (u1 + u2) / 2;
  g[0] = u0 + sum;
  g[s] = (u1 - u2) / 2;
  g[2 * s] = sum + u3;
}

}  // namespace

template <class T>
void winograd_input(T* v, const T* x, const WinogradImages& size, const TileRange& tiles) {
  using V = typename Lanes<T>::Vector;
  const std::vector<T> zeros(size.channels);
  const T* outside = zeros.data();
  with_avx2([=, &size, &tiles]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto from = window(x, outside, place_of(tile, size), size);
      T* to = v + (tile - tiles.first) * size.channels;
      for (std::size_t c = 0; c < size.channels; c += Lanes<T>::kWidth) {
        V d[16];
        for (std::size_t i = 0; i < 16; ++i) load(d[i], from[i] + c);
        for (std::size_t j = 0; j < 4; ++j) input_1d(d + j, 4);
        for (std::size_t i = 0; i < 4; ++i) input_1d(d + 4 * i, 1);
        for (std::size_t i = 0; i < 16; ++i) store(to + i * plane + c, d[i]);
      }
    }
  });
}

template <class T>
void winograd_output(T* y, const T* m, const T* bias, const WinogradImages& size, const TileRange& tiles) {
  using V = typename Lanes<T>::Vector;
  std::vector<T> beyond(size.channels);
  const std::vector<T> zeros(size.channels);
  T* outside = beyond.data();
  const T* shift = bias != nullptr ? bias : zeros.data();
  with_avx2([=, &size, &tiles]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto to = outputs(y, outside, place_of(tile, size), size);
      const T* from = m + (tile - tiles.first) * size.channels;
      for (std::size_t c = 0; c < size.channels; c += Lanes<T>::kWidth) {
        V d[16];
        for (std::size_t i = 0; i < 16; ++i) load(d[i], from + i * plane + c);
        for (std::size_t j = 0; j < 4; ++j) output_1d(d + j, 4);
        for (std::size_t i = 0; i < 2; ++i) output_1d(d + 4 * i, 1);
        V b;
        load(b, shift + c);
        store(to[0] + c, d[0] + b);
        store(to[1] + c, d[1] + b);
        store(to[2] + c, d[4] + b);
        store(to[3] + c, d[5] + b);
      }
    }
  });
}

template <class T>
void winograd_output_gradient(T* dm, const T* dy, const WinogradImages& size, const TileRange& tiles) {
  using V = typename Lanes<T>::Vector;
  const std::vector<T> zeros(size.channels);
  const T* outside = zeros.data();
  with_avx2([=, &size, &tiles]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto from = outputs(dy, outside, place_of(tile, size), size);
      T* to = dm + (tile - tiles.first) * size.channels;
      for (std::size_t c = 0; c < size.channels; c += Lanes<T>::kWidth) {
        V d[16];
        load(d[0], from[0] + c);
        load(d[1], from[1] + c);
        load(d[4], from[2] + c);
        load(d[5], from[3] + c);
        for (std::size_t j = 0; j < 2; ++j) output_gradient_1d(d + j, 4);
        for (std::size_t i = 0; i < 4; ++i) output_gradient_1d(d + 4 * i, 1);
        for (std::size_t i = 0; i < 16; ++i) store(to + i * plane + c, d[i]);
      }
    }
  });
}

template <class T>
void winograd_input_gradient(T* dx, const T* dv, const WinogradImages& size, const TileRange& tiles) {
  using V = typename Lanes<T>::Vector;
  std::vector<T> beyond(size.channels);
  T* outside = beyond.data();
  with_avx2([=, &size, &tiles]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(tiles.block, size.channels);
    for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto to = window(dx, outside, place_of(tile, size), size);
      const T* from = dv + (tile - tiles.first) * size.channels;
      for (std::size_t c = 0; c < size.channels; c += Lanes<T>::kWidth) {
        V d[16];
        for (std::size_t i = 0; i < 16; ++i) load(d[i], from + i * plane + c);
        for (std::size_t j = 0; j < 4; ++j) input_gradient_1d(d + j, 4);
        for (std::size_t i = 0; i < 4; ++i) input_gradient_1d(d + 4 * i, 1);
        for (std::size_t i = 0; i < 16; ++i) {
          V sum;
          load(sum, to[i] + c);
          store(to[i] + c, sum + d[i]);
        }
      }
    }
  });
}

template <class T>
void winograd_weight(T* u, const T* weight, std::size_t out, std::size_t in) {
  using V = typename Lanes<T>::Vector;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(out, in);
    for (std::size_t k = 0; k < out; ++k) {
      for (std::size_t c = 0; c < in; c += Lanes<T>::kWidth) {
        V g[16];
        for (std::size_t i = 0; i < 3; ++i) {
          for (std::size_t j = 0; j < 3; ++j) load(g[4 * i + j], weight + (k * 9 + 3 * i + j) * in + c);
        }
        for (std::size_t j = 0; j < 3; ++j) weight_1d(g + j, 4);
        for (std::size_t i = 0; i < 4; ++i) weight_1d(g + 4 * i, 1);
        for (std::size_t i = 0; i < 16; ++i) store(u + i * plane + k * in + c, g[i]);
      }
    }
  });
}

template <class T>
void winograd_weight_gradient(T* dweight, const T* du, std::size_t out, std::size_t in) {
  using V = typename Lanes<T>::Vector;
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    const std::size_t plane = winograd_plane(out, in);
    for (std::size_t k = 0; k < out; ++k) {
      for (std::size_t c = 0; c < in; c += Lanes<T>::kWidth) {
        V g[16];
        for (std::size_t i = 0; i < 16; ++i) load(g[i], du + i * plane + k * in + c);
        for (std::size_t j = 0; j < 4; ++j) weight_gradient_1d(g + j, 4);
        for (std::size_t i = 0; i < 3; ++i) weight_gradient_1d(g + 4 * i, 1);
        for (std::size_t i = 0; i < 3; ++i) {
          for (std::size_t j = 0; j < 3; ++j) store(dweight + (k * 9 + 3 * i + j) * in + c, g[4 * i + j]);
        }
      }
    }
  });
}

#define DTRAIN_DEFINE_WINOGRAD(T)                                                                    \
  template void winograd_input<T>(T*, const T*, const WinogradImages&, const TileRange&);            \
  template void winograd_output<T>(T*, const T*, const T*, const WinogradImages&, const TileRange&); \
  template void winograd_output_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);  \
  template void winograd_input_gradient<T>(T*, const T*, const WinogradImages&, const TileRange&);   \
  template void winograd_weight<T>(T*, const T*, std::size_t, std::size_t);                          \
  template void winograd_weight_gradient<T>(T*, const T*, std::size_t, std::size_t);
DTRAIN_DEFINE_WINOGRAD(float)
DTRAIN_DEFINE_WINOGRAD(double)
#undef DTRAIN_DEFINE_WINOGRAD

}  // namespace dtrain::kernels
