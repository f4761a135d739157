#include "kernels/small_gemm.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/products.hpp"

namespace dtrain::kernels {
namespace {

/// How much of the result a block holds in registers: dots of kRows x kDots rows and columns, or outer
/// products of kRows rows and kVectors vectors of columns. Those of the factors need some, too.
template <class Set>
struct Blocking {
  static constexpr std::size_t kRows = 4;
  static constexpr std::size_t kDots = 3;
  static constexpr std::size_t kVectors = 3;
};
template <>
struct Blocking<Avx512> {
  static constexpr std::size_t kRows = 4;
  static constexpr std::size_t kDots = 4;
  static constexpr std::size_t kVectors = 6;
};

template <class V, class T, std::size_t... Is>
DTRAIN_VECTOR_BODY inline void add_neighbours(V& out, const V& a, const V& b, std::index_sequence<Is...>) {
  constexpr int kWidth = sizeof(V) / sizeof(T);
  const V evens = __builtin_shufflevector(a, b, (2 * static_cast<int>(Is) % (2 * kWidth))...);
  const V odds = __builtin_shufflevector(a, b, (2 * static_cast<int>(Is) % (2 * kWidth) + 1)...);
  out = evens + odds;
}

/// The sum over the lanes of each of `Count` vectors, in one order.
template <std::size_t Count, class V, class T>
DTRAIN_VECTOR_BODY inline void sum_lanes(T* out, const V* vectors) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  for (std::size_t first = 0; first < Count; first += kWidth) {
    V level[kWidth];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kWidth; ++i) level[i] = first + i < Count ? vectors[first + i] : V{};
#pragma GCC unroll 4
    for (std::size_t width = kWidth; width > 1; width /= 2) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < width / 2; ++i)
        add_neighbours<V, T>(level[i], level[2 * i], level[2 * i + 1], std::make_index_sequence<kWidth>());
    }
    std::memcpy(out + first, &level[0], std::min(kWidth, Count - first) * sizeof(T));
  }
}

/// All bits of the lanes from `first` on.
template <class V, class T>
struct LaneMask {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  typedef Bits Mask __attribute__((vector_size(sizeof(V))));
  static constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  Bits lanes[kWidth];

  explicit LaneMask(std::size_t first) {
    for (std::size_t i = 0; i < kWidth; ++i) lanes[i] = i >= first ? Bits{-1} : Bits{0};
  }
  DTRAIN_VECTOR_BODY inline void apply(V& value) const {
    Mask mask;
    Mask bits;
    std::memcpy(&mask, lanes, sizeof(mask));
    std::memcpy(&bits, &value, sizeof(bits));
    bits &= mask;
    std::memcpy(&value, &bits, sizeof(bits));
  }
};

/// One product left x right^T of Rows x Columns elements, by dot products along the depth; `rest`: what
/// counts of the last vector, which begins before the others have ended.
template <std::size_t Rows, std::size_t Columns, class V, class T>
DTRAIN_VECTOR_BODY inline void dot_block(T* out, const T* left, const T* right, const T* bias,
                                         const GemmSize& size, const LaneMask<V, T>& rest) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  V sums[Rows * Columns];
#pragma GCC unroll 16
  for (V& sum : sums) sum = V{};
  const auto add = [&](const T* lefts, const T* rights, std::size_t step, auto masked) DTRAIN_VECTOR_BODY {
    V columns[Columns];
#pragma GCC unroll 8
    for (std::size_t c = 0; c < Columns; ++c) load(columns[c], rights + c * step);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      V value;
      load(value, lefts + r * step);
      if constexpr (masked) rest.apply(value);
#pragma GCC unroll 8
      for (std::size_t c = 0; c < Columns; ++c) sums[r * Columns + c] += value * columns[c];
    }
  };
  std::size_t d = 0;
  for (; d + kWidth <= size.depth; d += kWidth) add(left + d, right + d, size.depth, std::false_type());
  if (d < size.depth && size.depth >= kWidth) {
    const std::size_t last = size.depth - kWidth;
    add(left + last, right + last, size.depth, std::true_type());
  } else if (d < size.depth) {
    T lefts[Rows * kWidth] = {};
    T rights[Columns * kWidth] = {};
    for (std::size_t r = 0; r < Rows; ++r) std::copy_n(left + r * size.depth, size.depth, lefts + r * kWidth);
    for (std::size_t c = 0; c < Columns; ++c)
      std::copy_n(right + c * size.depth, size.depth, rights + c * kWidth);
    add(lefts, rights, kWidth, std::false_type());
  }
  T totals[Rows * Columns];
  sum_lanes<Rows * Columns, V>(totals, sums);
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t c = 0; c < Columns; ++c)
      out[r * size.columns + c] = totals[r * Columns + c] + (bias == nullptr ? T{0} : bias[c]);
  }
}

/// How the left factor of an outer product lies.
struct LeftStrides {
  std::size_t row = 0;
  std::size_t depth = 0;
};

/// Whether a product replaces what it is written to, or is added to it.
enum class Result { written, added };

/// Rows x Vectors vectors of left x right, by adding up outer products.
template <std::size_t Rows, std::size_t Vectors, Result Kind, class V, class T>
DTRAIN_VECTOR_BODY inline void outer_block(T* out, const T* left, const LeftStrides& strides, const T* right,
                                           const GemmSize& size) {
  constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
  V sums[Rows][Vectors];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      sums[r][v] = V{};
      if constexpr (Kind == Result::added) load(sums[r][v], out + r * size.columns + v * kWidth);
    }
  }
  for (std::size_t d = 0; d < size.depth; ++d) {
    const T* from = right + d * size.columns;
    const T* factors = left + d * strides.depth;
    V rights[Vectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) load(rights[v], from + v * kWidth);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < Rows; ++r) {
      const T factor = factors[r * strides.row];
#pragma GCC unroll 8
      for (std::size_t v = 0; v < Vectors; ++v) sums[r][v] += rights[v] * factor;
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) store(out + r * size.columns + v * kWidth, sums[r][v]);
  }
}

/// Calls `block.operator()<Rows>(first row)` for all rows.
template <std::size_t Rows, class Block>
DTRAIN_VECTOR_BODY inline void over_rows(std::size_t rows, const Block& block) {
  std::size_t r = 0;
  for (; r + Rows <= rows; r += Rows) block.template operator()<Rows>(r);
  for (; r < rows; ++r) block.template operator()<1>(r);
}

template <Result Kind, class T>
void outer_product(T* out, const T* left, const LeftStrides& strides, const T* right, const GemmSize& size) {
  with_products([&](auto set) DTRAIN_VECTOR_BODY {
    using Set = std::remove_cv_t<decltype(set)>;
    using V = typename VectorOf<T, Set::kBytes>::Type;
    constexpr std::size_t kRows = Blocking<Set>::kRows;
    constexpr std::size_t kVectors = Blocking<Set>::kVectors;
    constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
    const auto panel = [&]<class Vector, std::size_t Vectors>(std::size_t c) DTRAIN_VECTOR_BODY {
      over_rows<kRows>(size.rows, [&]<std::size_t Rows>(std::size_t r) DTRAIN_VECTOR_BODY {
        outer_block<Rows, Vectors, Kind, Vector>(out + r * size.columns + c, left + r * strides.row, strides,
                                                 right + c, size);
      });
    };
    if (size.columns < kWidth || (Kind == Result::added && size.columns % kWidth != 0)) {
      for (std::size_t c = 0; c < size.columns; ++c) panel.template operator()<T, 1>(c);
      return;
    }
    // A panel of `right` stays in the first-level cache while all of `left` passes by. The last one begins
    // where it ends with the row: some columns are computed twice, with the same bits.
    for (std::size_t c = 0; c < size.columns;) {
      const std::size_t whole = std::min((size.columns - c) / kWidth, kVectors);
      const std::size_t vectors = std::max<std::size_t>(whole, 1);
      const std::size_t begin = std::min(c, size.columns - vectors * kWidth);
      with_count(vectors, [&]<std::size_t Vectors>() DTRAIN_VECTOR_BODY {
        if constexpr (Vectors <= kVectors) panel.template operator()<V, Vectors>(begin);
      });
      c = begin + vectors * kWidth;
    }
  });
}

}  // namespace

bool has_small_gemm() noexcept { return product_vector_bytes() > Plain::kBytes; }

template <class T>
void multiply_transposed(T* out, const T* left, const T* right, const T* bias, const GemmSize& size) {
  with_products([&](auto set) DTRAIN_VECTOR_BODY {
    using Set = decltype(set);
    using V = typename VectorOf<T, Set::kBytes>::Type;
    constexpr std::size_t kRows = Blocking<Set>::kRows;
    constexpr std::size_t kDots = Blocking<Set>::kDots;
    constexpr std::size_t kWidth = sizeof(V) / sizeof(T);
    const LaneMask<V, T> rest((kWidth - size.depth % kWidth) % kWidth);
    // Some rows of `right` stay in the first-level cache while all of `left` passes by.
    for (std::size_t c = 0; c < size.columns;) {
      const auto dots = [&]<std::size_t Columns>() DTRAIN_VECTOR_BODY {
        over_rows<kRows>(size.rows, [&]<std::size_t Rows>(std::size_t r) DTRAIN_VECTOR_BODY {
          dot_block<Rows, Columns, V>(out + r * size.columns + c, left + r * size.depth,
                                      right + c * size.depth, bias == nullptr ? nullptr : bias + c, size,
                                      rest);
        });
      };
      const bool whole = c + kDots <= size.columns;
      if (whole) {
        dots.template operator()<kDots>();
      } else {
        dots.template operator()<1>();
      }
      c += whole ? kDots : 1;
    }
  });
}

template <class T>
void multiply(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
              const GemmSize& size) {
  outer_product<Result::written>(out, left, {row_stride, depth_stride}, right, size);
}

template <class T>
void multiply_onto(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
                   const GemmSize& size) {
  outer_product<Result::added>(out, left, {row_stride, depth_stride}, right, size);
}

template <class T>
void column_sums(T* out, const T* matrix, std::size_t rows, std::size_t columns) {
  std::fill(out, out + columns, T{0});
  with_avx2([=]() DTRAIN_VECTOR_BODY {
    for (std::size_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
      for (std::size_t c = 0; c < columns; ++c) out[c] += matrix[r * columns + c];
    }
  });
}

template void multiply_transposed<float>(float*, const float*, const float*, const float*, const GemmSize&);
template void multiply_transposed<double>(double*, const double*, const double*, const double*,
                                          const GemmSize&);
template void multiply<float>(float*, const float*, std::size_t, std::size_t, const float*, const GemmSize&);
template void multiply<double>(double*, const double*, std::size_t, std::size_t, const double*,
                               const GemmSize&);
template void multiply_onto<float>(float*, const float*, std::size_t, std::size_t, const float*,
                                   const GemmSize&);
template void multiply_onto<double>(double*, const double*, std::size_t, std::size_t, const double*,
                                    const GemmSize&);
template void column_sums<float>(float*, const float*, std::size_t, std::size_t);
template void column_sums<double>(double*, const double*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
