#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

// A vocabulary whose words are shared out among the ranks of a tensor group: rows of the embedding and of the
// output layer. Without a slice each function is the plain operation. Source: Shoeybi et al., "Megatron-LM",
// 2019, section 3.

/// Throws Error (exit code 3), saying of `subject`, where an id in `ids`, on the CPU, is outside [0, words).
void require_known(const at::Tensor& ids, std::int64_t words, const std::string& subject);

/// Rows `ids` [...] of `table` [words, width], as far as this rank holds them: [..., width], zero elsewhere.
/// The sum over the ranks of the group is the embedding.
at::Tensor held_rows(const Parameter& table, const at::Tensor& ids);

/// Logits [..., words] of all words from what each rank has of them, without gradient.
at::Tensor of_all_words(const at::Tensor& logits, const Parameter& table, TensorGroup* group);

/// The likeliest word by each row of `logits` [n, words held], int64 [n]; of equals the first.
at::Tensor likeliest_words(const at::Tensor& logits, const Parameter& table, TensorGroup* group);

}  // namespace dtrain::models
