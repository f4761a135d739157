#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// Matrix products for layers of small models, whose matrices fit the second-level cache: no packing, no
/// threads, and each row's bits depend on nothing but that row. Row-major, dense, float or double. For where
/// has_small_gemm(): AVX2 with FMA, or AVX-512; elsewhere a library's products are faster.
bool has_small_gemm() noexcept;

/// Extents of a product: out [rows, columns], summed over `depth`.
struct GemmSize {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
};

/// out = left x right^T + bias: a linear layer's forward. `left` [rows, depth], `right` [columns, depth],
/// `bias` [columns] or null.
template <class T>
void multiply_transposed(T* out, const T* left, const T* right, const T* bias, const GemmSize& size);

/// out = left x right, with left(r, d) = left[r * row_stride + d * depth_stride] and `right` [depth,
/// columns]. A linear layer's backward: the input's gradient (row_stride = depth, depth_stride = 1) and the
/// weight's (the output's gradient transposed: row_stride 1, depth_stride = rows).
template <class T>
void multiply(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
              const GemmSize& size);

/// The same, added to `out`. Slow unless rows of `out` are whole vectors of the processor.
template <class T>
void multiply_onto(T* out, const T* left, std::size_t row_stride, std::size_t depth_stride, const T* right,
                   const GemmSize& size);

/// out[c] = sum over rows of matrix[r, c].
template <class T>
void column_sums(T* out, const T* matrix, std::size_t rows, std::size_t columns);

extern template void multiply_transposed<float>(float*, const float*, const float*, const float*,
                                                const GemmSize&);
extern template void multiply_transposed<double>(double*, const double*, const double*, const double*,
                                                 const GemmSize&);
extern template void multiply<float>(float*, const float*, std::size_t, std::size_t, const float*,
                                     const GemmSize&);
extern template void multiply<double>(double*, const double*, std::size_t, std::size_t, const double*,
                                      const GemmSize&);
extern template void multiply_onto<float>(float*, const float*, std::size_t, std::size_t, const float*,
                                          const GemmSize&);
extern template void multiply_onto<double>(double*, const double*, std::size_t, std::size_t, const double*,
                                           const GemmSize&);
extern template void column_sums<float>(float*, const float*, std::size_t, std::size_t);
extern template void column_sums<double>(double*, const double*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
