#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

using Sentence = std::vector<std::int32_t>;  ///< Ids without start, end and padding.

/// The likeliest next word at each step until the end token or `longest` words. `source`: int32 [n, S] with
/// start and end tokens, padded with 0. One translation per row. `seq2seq` must be that model (else Error).
std::vector<Sentence> translate_greedily(Model& seq2seq, const at::Tensor& source, std::int64_t longest);

/// The translation of the highest mean log probability per word (end token counted) among those that a beam
/// of `width` hypotheses finds. `source`: int32 [1, S]. Throws Error for a width below 1.
Sentence translate_by_beam(Model& seq2seq, const at::Tensor& source, std::int64_t width,
                           std::int64_t longest);

}  // namespace dtrain::models
