#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layer.hpp"

namespace dtrain::models {

/// Bytes of logits that chunked_token_loss() has at once.
inline constexpr std::int64_t kLogitBytes = std::int64_t{1} << 30;
/// Columns that its logits are padded to a multiple of: an odd number keeps a GPU from its fastest products.
inline constexpr std::int64_t kLogitColumns = 64;

/// Rows whose logits, of `columns` columns and `element_bytes` each, take at most `bytes`; at least 1.
std::int64_t rows_at_once(std::int64_t columns, std::int64_t element_bytes, std::int64_t bytes = kLogitBytes);
/// Rows of a piece, where `rows` are cut into as few as have at most `most` each: pieces of nearly one size.
std::int64_t rows_of_piece(std::int64_t rows, std::int64_t most);

/// What columns are padded to.
constexpr std::int64_t padded_columns(std::int64_t words) {
  return (words + kLogitColumns - 1) / kLogitColumns * kLogitColumns;
}

/// The weight W [words, width] of a layer whose output is logits.
struct OutputWords {
  at::Tensor value;   ///< In the graph.
  at::Tensor factor;  ///< What products take: the value itself, or a copy in half precision.
  /// Whose value it is: backward writes where its gradient is collected. Null: it does not know.
  const Parameter* parameter = nullptr;
};

/// As fused_token_loss() of the logits input W^T, `input` [n, width] and W's factor of one type, fp32 or
/// bf16: `rows` rows at a time, each piece's logits taking the memory of the last one's. The
/// gradients of both are computed at once, in the forward pass; backward multiplies them by that of the loss.
/// The words' are summed in float, a GPU's without rounding before, and given in the type of W's value.
/// Shape: `targets` [n] int64, each below words, beside the input. Returns a scalar in float. Source: Hsu et
/// al., "Liger Kernel", arXiv:2410.10989, section 3.2.
at::Tensor chunked_token_loss(const at::Tensor& input, const OutputWords& words, const at::Tensor& targets,
                              std::int64_t rows);

}  // namespace dtrain::models
