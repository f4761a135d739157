#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// Extents of products of a matrix [rows, columns], row-major, with `rank` vectors.
struct LowRankSize {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
};

/// Products with few vectors, as low-rank approximations need them. All in float32, with the same bits on all
/// processors.

/// out[r, k] = sum over c of matrix[r, c] right[k, c]: `out` [rows, rank], `right` [rank, columns].
void multiply_by_few(float* out, const float* matrix, const float* right, const LowRankSize& size);

/// out[k, c] = sum over r of left[r, k] matrix[r, c]: `out` [rank, columns], `left` [rows, rank].
void multiply_few_by(float* out, const float* left, const float* matrix, const LowRankSize& size);

/// matrix[r, c] += factor * sum over k of left[r, k] right[k, c].
void add_low_rank(float* matrix, const float* left, const float* right, float factor,
                  const LowRankSize& size);

/// Makes the columns of `vectors` [rows, rank] orthonormal: by the Cholesky factor of their products, in
/// double, or where they nearly depend on each other by Gram and Schmidt's way. A column that adds nothing to
/// those before it becomes one that depends on `seed` only. `rank` is at most `rows`.
void orthonormalise(float* vectors, std::size_t rows, std::size_t rank, unsigned seed);

}  // namespace dtrain::kernels
