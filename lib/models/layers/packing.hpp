#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dtrain::models {

/// Sequences of different lengths without their padding: longest first, step after step, so that step t is
/// the first batch_sizes[t] of them. No result depends on how far a batch was padded.
struct Packing {
  std::vector<std::int64_t> batch_sizes;  ///< Sequences that have a step t; never rises.
  at::Tensor order;                       ///< int64 [n]: the sequence in each place, longest first.
  at::Tensor place;                       ///< int64 [n]: the place of each sequence.
  at::Tensor positions;  ///< int64 [tokens]: where each packed token lies in the padded matrix, flattened.
};

/// For rows of `lengths` in a matrix of `width` columns. Rows may be empty.
Packing pack(const std::vector<std::int64_t>& lengths, std::int64_t width);

/// The number of ids before the padding (id 0) of each row. `ids`: int32 [n, T].
std::vector<std::int64_t> lengths_of(const at::Tensor& ids);

/// Of each packed token the sequence that it belongs to, int64 [tokens]. `width`: as pack() was given.
at::Tensor samples_of(const Packing& packing, std::int64_t width);

/// The elements of `padded` [n, T] in packed order: [tokens].
at::Tensor packed(const at::Tensor& padded, const Packing& packing);

}  // namespace dtrain::models
