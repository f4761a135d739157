#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

using Sentence = std::vector<std::int32_t>;  ///< Ids without start, end and padding.

/// What the decoder starts from: hidden and cell [layers, n, hidden]. `source`: int32 [n, S] with start and
/// end tokens, padded with 0. `seq2seq` must be that model, here as below (else Error), and hold its encoder.
Tensors encode(Model& seq2seq, const at::Tensor& source);

/// Memory of the shapes that encode() gives for `n` sentences, on a rank that does not hold the encoder.
Tensors room_for_encoded(const Model& seq2seq, std::int64_t n, at::ScalarType type);

/// The likeliest next word at each step until the end token or `longest` words, one translation per row of
/// `encoded`. The model must hold its decoder, here as below.
std::vector<Sentence> translate_greedily(Model& seq2seq, const Tensors& encoded, std::int64_t longest);

/// The translation of the highest mean log probability per word (end token counted) among those that a beam
/// of `width` hypotheses finds. `encoded`: of one sentence. Throws Error for a width below 1.
Sentence translate_by_beam(Model& seq2seq, const Tensors& encoded, std::int64_t width, std::int64_t longest);

}  // namespace dtrain::models
