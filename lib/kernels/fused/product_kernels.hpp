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

/// result [rows, columns] = a' b', with a' [rows, depth] and b' [depth, columns]; row-major.
struct MatrixProduct {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
  bool transposes_a = false;  ///< `a` lies in memory as [depth, rows].
  bool transposes_b = false;  ///< `b` lies in memory as [columns, depth].
  bool in_float = false;      ///< The result; else it is of the factors' type.
};

/// Extents of D = op(A) op(B) as libraries for Fortran's order take them: column-major, op(A) [m, k], op(B)
/// [k, n], D [m, n], `ld*` elements from one column to the next.
struct ColumnProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transposes_a = false;  ///< op(A) = A^T.
  bool transposes_b = false;  ///< op(B) = B^T.
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
};

/// Whether all begin at a multiple of 16 bytes; null does.
inline bool lie_on_vectors(std::initializer_list<const void*> pointers) {
  constexpr std::uintptr_t kVectorBytes = 16;
  for (const void* pointer : pointers) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes != 0) return false;
  }
  return true;
}

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

/// The transposes of it all: A = b, B = a.
constexpr ColumnProduct product_in_columns(const MatrixProduct& of) {
  const auto rows = static_cast<std::int64_t>(of.rows);
  const auto columns = static_cast<std::int64_t>(of.columns);
  const auto depth = static_cast<std::int64_t>(of.depth);
  return {.m = columns,
          .n = rows,
          .k = depth,
          .transposes_a = of.transposes_b,
          .transposes_b = of.transposes_a,
          .lda = of.transposes_b ? depth : columns,
          .ldb = of.transposes_a ? rows : depth,
          .ldd = columns};
}

/// Whether a library is asked for it: half precision, and rows of whole vectors of 16 bytes.
inline bool takes_product(const MatrixProduct& of, Element type,
                          std::initializer_list<const void*> pointers) {
  constexpr std::size_t kElements = 8;
  if (type == Element::float32 || of.rows == 0 || of.columns == 0 || of.depth == 0) return false;
  if (of.columns % kElements != 0 || of.depth % kElements != 0) return false;
  if (of.transposes_a && of.rows % kElements != 0) return false;
  return lie_on_vectors(pointers);
}

/// Whether an epilogue is asked for: half precision, and 16 bytes from each row to a multiple of 8 elements.
/// Source: the documentation of cuBLAS 13, cublasLtEpilogue_t and CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD.
inline bool takes_epilogue(const InnerProduct& of, Element type,
                           std::initializer_list<const void*> pointers) {
  constexpr std::size_t kElements = 8;
  if (type == Element::float32 || of.rows == 0 || of.width == 0 || of.inner == 0) return false;
  if (of.width % kElements != 0 || of.inner % kElements != 0) return false;
  return lie_on_vectors(pointers);
}

/// Matrix products whose results a GPU's library works on while it has them, instead of writing them to
/// memory for another kernel to read. GELU is in the form with tanh: what the library has. All tensors are of
/// one type in half precision, in the GPU's memory; sums are in float. Each call returns false, and has done
/// nothing, where the library has no such product for these sizes, or is not there: always the same for the
/// same sizes. Throws Error where it fails.
/// The library proposes several algorithms for a product. The first call for its sizes, unless its stream is
/// being captured, runs each some times, writes the result more than once, and keeps the fastest: so the last
/// bits of a result may differ from one process to the next.
class ProductKernels {
 public:
  using Stream = void*;
  virtual ~ProductKernels() = default;

  /// Of memory that a call may use, in the GPU's memory, aligned to 256 bytes.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

  /// `result` = a' b' + `bias` [columns], null: without.
  virtual bool multiply(void* result, const void* a, const void* b, const void* bias, Element type,
                        const MatrixProduct& of, void* workspace, Stream stream) const = 0;
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
