#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/element.hpp"

namespace dtrain::kernels {

/// The inner layer of a perceptron: input [rows, width], weight [inner, width], bias [inner], result [rows,
/// inner]; row-major.
struct InnerProduct {
  std::size_t rows = 0;
  std::size_t width = 0;
  std::size_t inner = 0;
};

/// Extents of D = op(A) B as libraries for Fortran's order take them: column-major, op(A) [m, k], B [k, n],
/// D [m, n], `ld*` elements from one column to the next.
struct ColumnProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transposes_a = false;  ///< op(A) = A^T.
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
};

/// x W^T with A = W, B = x: row-major [rows, inner] is D of m = inner, to each column of which a bias of
/// length m is added.
constexpr ColumnProduct product_with_weight(const InnerProduct& of) {
  const auto rows = static_cast<std::int64_t>(of.rows);
  const auto width = static_cast<std::int64_t>(of.width);
  const auto inner = static_cast<std::int64_t>(of.inner);
  return {.m = inner, .n = rows, .k = width, .transposes_a = true, .lda = width, .ldb = width, .ldd = inner};
}

/// The gradient of the inner result, of_output V with V [width, inner] the outer weight and of_output [rows,
/// width]: A = V, B = of_output.
constexpr ColumnProduct product_with_outer(const InnerProduct& of) {
  const auto rows = static_cast<std::int64_t>(of.rows);
  const auto width = static_cast<std::int64_t>(of.width);
  const auto inner = static_cast<std::int64_t>(of.inner);
  return {.m = inner, .n = rows, .k = width, .transposes_a = false, .lda = inner, .ldb = width, .ldd = inner};
}

/// Whether an epilogue is asked for: half precision, and 16 bytes from each row to a multiple of 8 elements.
/// Source: the documentation of cuBLAS 13, cublasLtEpilogue_t and CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
inline bool takes_epilogue(const InnerProduct& of, Element type,
                           std::initializer_list<const void*> pointers) {
  constexpr std::size_t kElements = 8;
  if (type == Element::float32 || of.rows == 0 || of.width == 0 || of.inner == 0) return false;
  if (of.width % kElements != 0 || of.inner % kElements != 0) return false;
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) return false;
  }
  return true;
}

/// Matrix products whose results a GPU's library works on while it has them, instead of writing them to
/// memory for another kernel to read. GELU is in the form with tanh: what the library has. All tensors are of
/// one type in half precision, in the GPU's memory; sums are in float. Each call returns false, and has done
/// nothing, where the library has no such product for these sizes, or is not there: always the same for the
/// same sizes. Throws Error where it fails.
class ProductKernels {
 public:
  using Stream = void*;
  virtual ~ProductKernels() = default;

  /// Of memory that a call may use, in the GPU's memory, aligned to 256 bytes.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// `before` = x W^T + b, which backward reads, and `out` = gelu(before).
  virtual bool gelu(void* out, void* before, const void* x, const void* weight, const void* bias,
                    Element type, const InnerProduct& of, void* workspace, Stream stream) const = 0;
  /// `gradient` = (of_output V) * gelu'(before), and its sum over the rows in float: the bias's gradient
  /// [inner].
  virtual bool gelu_gradient(void* gradient, float* of_bias, const void* of_output, const void* outer,
                             const void* before, Element type, const InnerProduct& of, void* workspace,
                             Stream stream) const = 0;
};

}  // namespace dtrain::kernels
