#include "kernels/small_gemm.hpp"

#include <algorithm>
#include <array>

#include "kernels/fma_vector.hpp"
#include "kernels/simd.hpp"

namespace dtrain::kernels {

bool has_small_gemm() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__)
namespace {

// Twelve accumulators of the sixteen vector registers; three loaded vectors and a broadcast are the others.
constexpr std::size_t kBlockRows = 4;
constexpr std::size_t kBlockVectors = 3;

/// One product left x right^T of Rows x Columns elements, by dot products along the depth.
template <class T, std::size_t Rows, std::size_t Columns>
__attribute__((target("avx2,fma"))) void dot_block(T* out, const T* left, const T* right, const T* bias,
                                                   const GemmSize& size) {
  using V = FmaVector<T>;
  typename V::Value sums[kBlockRows][Columns];
  for (auto& row : sums) {
    for (auto& sum : row) sum = V::zero();
  }
  std::size_t d = 0;
  for (; d + V::kWidth <= size.depth; d += V::kWidth) {
    typename V::Value rights[Columns];
    for (std::size_t c = 0; c < Columns; ++c) rights[c] = V::load(right + c * size.depth + d);
    for (std::size_t r = 0; r < Rows; ++r) {
      const auto value = V::load(left + r * size.depth + d);
      for (std::size_t c = 0; c < Columns; ++c) sums[r][c] = V::fma(value, rights[c], sums[r][c]);
    }
  }
  if (d < size.depth) {
    const auto mask = V::first(size.depth - d);
    for (std::size_t r = 0; r < Rows; ++r) {
      const auto value = V::load(left + r * size.depth + d, mask);
      for (std::size_t c = 0; c < Columns; ++c) {
        sums[r][c] = V::fma(value, V::load(right + c * size.depth + d, mask), sums[r][c]);
      }
    }
  }
  for (std::size_t c = 0; c < Columns; ++c) {
    std::array<T, kBlockRows> totals;
    V::sum_lanes(totals, sums[0][c], sums[1][c], sums[2][c], sums[3][c]);
    const T shift = bias == nullptr ? T{0} : bias[c];
    for (std::size_t r = 0; r < Rows; ++r) out[r * size.columns + c] = totals[r] + shift;
  }
}

/// Rows x Vectors vectors of left x right, by adding up outer products; the last vector may be partly
/// outside.
template <class T, std::size_t Rows, std::size_t Vectors>
__attribute__((target("avx2,fma"))) void outer_block(T* out, const T* left, std::size_t row_stride,
                                                     std::size_t depth_stride, const T* right,
                                                     const GemmSize& size, std::size_t last_lanes) {
  using V = FmaVector<T>;
  const bool whole = last_lanes == V::kWidth;
  const auto mask = V::first(last_lanes);
  typename V::Value sums[Rows][Vectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = V::zero();
  }
  const auto accumulate = [&](bool masked) DTRAIN_VECTOR_BODY __attribute__((target("avx2,fma"))) {
    for (std::size_t d = 0; d < size.depth; ++d) {
      const T* from = right + d * size.columns;
      typename V::Value rights[Vectors];
      for (std::size_t v = 0; v + 1 < Vectors; ++v) rights[v] = V::load(from + v * V::kWidth);
      const T* last = from + (Vectors - 1) * V::kWidth;
      rights[Vectors - 1] = masked ? V::load(last, mask) : V::load(last);
      for (std::size_t r = 0; r < Rows; ++r) {
        const auto value = V::all(left[r * row_stride + d * depth_stride]);
        for (std::size_t v = 0; v < Vectors; ++v) sums[r][v] = V::fma(value, rights[v], sums[r][v]);
      }
    }
  };
  if (whole) {
    accumulate(false);
  } else {
    accumulate(true);
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    T* to = out + r * size.columns;
    for (std::size_t v = 0; v + 1 < Vectors; ++v) V::store(to + v * V::kWidth, sums[r][v]);
    V::store(to + (Vectors - 1) * V::kWidth, sums[r][Vectors - 1], mask);
  }
}

template <class T, std::size_t Columns>
void dot_rows(T* out, const T* left, const T* right, const T* bias, const GemmSize& size) {
  std::size_t r = 0;
  for (; r + kBlockRows <= size.rows; r += kBlockRows) {
    dot_block<T, kBlockRows, Columns>(out + r * size.columns, left + r * size.depth, right, bias, size);
  }
  for (; r < size.rows; ++r) {
    dot_block<T, 1, Columns>(out + r * size.columns, left + r * size.depth, right, bias, size);
  }
}

template <class T, std::size_t Vectors>
void outer_rows(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
                const GemmSize& size, std::size_t last_lanes) {
  std::size_t r = 0;
  for (; r + kBlockRows <= size.rows; r += kBlockRows) {
    outer_block<T, kBlockRows, Vectors>(out + r * size.columns, left + r * row_stride, row_stride,
                                        depth_stride, right, size, last_lanes);
  }
  for (; r < size.rows; ++r) {
    outer_block<T, 1, Vectors>(out + r * size.columns, left + r * row_stride, row_stride, depth_stride, right,
                               size, last_lanes);
  }
}

}  // namespace

template <class T>
void multiply_transposed(T* out, const T* left, const T* right, const T* bias, const GemmSize& size) {
  // Some rows of `right` stay in the first-level cache while all of `left` passes by.
  std::size_t c = 0;
  for (; c + 3 <= size.columns; c += 3) {
    dot_rows<T, 3>(out + c, left, right + c * size.depth, bias == nullptr ? nullptr : bias + c, size);
  }
  for (; c < size.columns; ++c) {
    dot_rows<T, 1>(out + c, left, right + c * size.depth, bias == nullptr ? nullptr : bias + c, size);
  }
}

template <class T>
void multiply(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
              const GemmSize& size) {
  constexpr std::size_t kWidth = FmaVector<T>::kWidth;
  // A panel of `right` stays in the first-level cache while all of `left` passes by.
  std::size_t c = 0;
  while (c < size.columns) {
    const std::size_t vectors = std::min((size.columns - c + kWidth - 1) / kWidth, kBlockVectors);
    const std::size_t lanes = std::min(size.columns - c - (vectors - 1) * kWidth, kWidth);
    const auto block = vectors == 3   ? &outer_rows<T, 3>
                       : vectors == 2 ? &outer_rows<T, 2>
                                      : &outer_rows<T, 1>;
    block(out + c, left, row_stride, depth_stride, right + c, size, lanes);
    c += vectors * kWidth;
  }
}

#else

// Never called: has_small_gemm() is false.
template <class T>
void multiply_transposed(T*, const T*, const T*, const T*, const GemmSize&) {}
template <class T>
void multiply(T*, const T*, std::size_t, std::size_t, const T*, const GemmSize&) {}

#endif

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
template void column_sums<float>(float*, const float*, std::size_t, std::size_t);
template void column_sums<double>(double*, const double*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
