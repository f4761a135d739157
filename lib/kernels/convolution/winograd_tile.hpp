#pragma once

#include <cstddef>

#include "kernels/lanes.hpp"

namespace dtrain::kernels {

/// The transforms of F(m x m, 3 x 3) in one dimension, in place; `s` is the distance between the elements.
/// Each begins with as many numbers as it needs and leaves as many as it gives. Source: Lavin & Gray, "Fast
/// Algorithms for Convolutional Neural Networks", CVPR 2016.
template <class V, class T, std::size_t Outputs>
struct WinogradTile;

/// By the points 0, 1, -1 and infinity: only sums and halves.
template <class V, class T>
struct WinogradTile<V, T, 2> {
  /// B^T: four to four.
  DTRAIN_VECTOR_BODY static inline void input(V* d, std::size_t s) {
    const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
    d[0] = d0 - d2;
    d[s] = d1 + d2;
    d[2 * s] = d2 - d1;
    d[3 * s] = d1 - d3;
  }
  /// B: its adjoint.
  DTRAIN_VECTOR_BODY static inline void input_gradient(V* d, std::size_t s) {
    const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
    d[0] = d0;
    d[s] = d1 - d2 + d3;
    d[2 * s] = d1 + d2 - d0;
    d[3 * s] = V{} - d3;
  }
  /// A^T: four to two.
  DTRAIN_VECTOR_BODY static inline void output(V* m, std::size_t s) {
    const V m0 = m[0], m1 = m[s], m2 = m[2 * s], m3 = m[3 * s];
    m[0] = m0 + m1 + m2;
    m[s] = m1 - m2 - m3;
  }
  /// A: two to four.
  DTRAIN_VECTOR_BODY static inline void output_gradient(V* m, std::size_t s) {
    const V y0 = m[0], y1 = m[s];
    m[s] = y0 + y1;
    m[2 * s] = y0 - y1;
    m[3 * s] = V{} - y1;
  }
  /// G: three to four.
  DTRAIN_VECTOR_BODY static inline void weight(V* g, std::size_t s) {
    const V g0 = g[0], g1 = g[s], g2 = g[2 * s];
    const V outer = (g0 + g2) / 2;
    const V inner = g1 / 2;
    g[s] = outer + inner;
    g[2 * s] = outer - inner;
    g[3 * s] = g2;
  }
  /// G^T: four to three.
  DTRAIN_VECTOR_BODY static inline void weight_gradient(V* g, std::size_t s) {
    const V u0 = g[0], u1 = g[s], u2 = g[2 * s], u3 = g[3 * s];
    const V sum = (u1 + u2) / 2;
    g[0] = u0 + sum;
    g[s] = (u1 - u2) / 2;
    g[2 * s] = sum + u3;
  }
};

/// By the points 0, +-1/sqrt(2), +-sqrt(2) and infinity. With the usual 0, +-1, +-2 results are three to four
/// times less exact: a point and its inverse keep the factors of large and small powers near one another.
/// Source of the effect: Barabasz, Anderson, Soodhalter and Gregg, "Error Analysis and Improving the Accuracy
/// of Winograd Convolution for Deep Neural Networks", ACM TOMS 2020.
template <class V, class T>
struct WinogradTile<V, T, 4> {
  static constexpr T kSmall = static_cast<T>(0.70710678118654752440L);
  static constexpr T kLarge = static_cast<T>(1.41421356237309504880L);

  /// B^T: six to six.
  DTRAIN_VECTOR_BODY static inline void input(V* d, std::size_t s) {
    const V d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    const V even_small = d4 - d2 * T{2};
    const V odd_small = (d3 - d1 * T{2}) * kSmall;
    const V even_large = d4 - d2 * T{0.5};
    const V odd_large = (d3 - d1 * T{0.5}) * kLarge;
    d[0] = d0 + d4 - d2 * T{2.5};
    d[s] = even_small + odd_small;
    d[2 * s] = even_small - odd_small;
    d[3 * s] = even_large + odd_large;
    d[4 * s] = even_large - odd_large;
    d[5 * s] = d1 + d5 - d3 * T{2.5};
  }
  /// B: its adjoint.
  DTRAIN_VECTOR_BODY static inline void input_gradient(V* d, std::size_t s) {
    const V v0 = d[0], v5 = d[5 * s];
    const V even_small = d[s] + d[2 * s];
    const V odd_small = (d[s] - d[2 * s]) * kSmall;
    const V even_large = d[3 * s] + d[4 * s];
    const V odd_large = (d[3 * s] - d[4 * s]) * kLarge;
    d[s] = v5 - odd_small * T{2} - odd_large * T{0.5};
    d[2 * s] = V{} - v0 * T{2.5} - even_small * T{2} - even_large * T{0.5};
    d[3 * s] = odd_small + odd_large - v5 * T{2.5};
    d[4 * s] = v0 + even_small + even_large;
  }
  /// A^T: six to four.
  DTRAIN_VECTOR_BODY static inline void output(V* m, std::size_t s) {
    const V m0 = m[0], m5 = m[5 * s];
    const V even_small = m[s] + m[2 * s];
    const V odd_small = (m[s] - m[2 * s]) * kSmall;
    const V even_large = m[3 * s] + m[4 * s];
    const V odd_large = (m[3 * s] - m[4 * s]) * kLarge;
    m[0] = m0 + even_small + even_large;
    m[s] = odd_small + odd_large;
    m[2 * s] = even_small * T{0.5} + even_large * T{2};
    m[3 * s] = odd_small * T{0.5} + odd_large * T{2} + m5;
  }
  /// A: four to six.
  DTRAIN_VECTOR_BODY static inline void output_gradient(V* m, std::size_t s) {
    const V y0 = m[0], y1 = m[s], y2 = m[2 * s], y3 = m[3 * s];
    const V even_small = y0 + y2 * T{0.5};
    const V odd_small = (y1 + y3 * T{0.5}) * kSmall;
    const V even_large = y0 + y2 * T{2};
    const V odd_large = (y1 + y3 * T{2}) * kLarge;
    m[s] = even_small + odd_small;
    m[2 * s] = even_small - odd_small;
    m[3 * s] = even_large + odd_large;
    m[4 * s] = even_large - odd_large;
    m[5 * s] = y3;
  }
  /// G: three to six.
  DTRAIN_VECTOR_BODY static inline void weight(V* g, std::size_t s) {
    const V g0 = g[0], g1 = g[s], g2 = g[2 * s];
    const V even_small = (g0 + g2 * T{0.5}) * kOfSmall;
    const V odd_small = g1 * (kOfSmall * kSmall);
    const V even_large = (g0 + g2 * T{2}) * kOfLarge;
    const V odd_large = g1 * (kOfLarge * kLarge);
    g[s] = even_small + odd_small;
    g[2 * s] = even_small - odd_small;
    g[3 * s] = even_large + odd_large;
    g[4 * s] = even_large - odd_large;
    g[5 * s] = g2;
  }
  /// G^T: six to three.
  DTRAIN_VECTOR_BODY static inline void weight_gradient(V* g, std::size_t s) {
    const V even_small = (g[s] + g[2 * s]) * kOfSmall;
    const V odd_small = (g[s] - g[2 * s]) * (kOfSmall * kSmall);
    const V even_large = (g[3 * s] + g[4 * s]) * kOfLarge;
    const V odd_large = (g[3 * s] - g[4 * s]) * (kOfLarge * kLarge);
    g[0] = g[0] + even_small + even_large;
    g[s] = odd_small + odd_large;
    g[2 * s] = even_small * T{0.5} + even_large * T{2} + g[5 * s];
  }

 private:
  // One over the product of a point's distances to the others.
  static constexpr T kOfSmall = T{-2} / T{3};
  static constexpr T kOfLarge = T{1} / T{6};
};

}  // namespace dtrain::kernels
