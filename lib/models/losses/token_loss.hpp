#pragma once

#include "models/losses/chunked_token_loss.hpp"
#include "models/model.hpp"

namespace dtrain::models {

/// Sum over target tokens of -log softmax(logits)[token]; the weight is the number of tokens. `correct` stays
/// undefined: right_tokens() counts apart, in evaluation only.
/// Label smoothing is as in cross_entropy_sums().
/// Shapes: `logits` [tokens, vocabulary], `targets` int64 [tokens]. Throws Error (exit code 3) for shapes or
/// ids that do not fit.
LossSums token_cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                                  double label_smoothing = 0);

/// The same without label smoothing by fused_token_loss(), where that takes the logits [tokens, columns], of
/// which the first `words` are words.
LossSums fused_token_loss_sums(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words);

/// The same by chunked_token_loss(), of the factors of the logits: `input` [tokens, width] and `words`.
LossSums chunked_token_loss_sums(const at::Tensor& input, const OutputWords& words,
                                 const at::Tensor& targets);

/// The same where each rank of `group` has the logits [tokens, words] of the words `part` only; the sums are
/// those of all words, alike on all ranks.
LossSums sliced_token_cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                                         const Flow& flow, TensorGroup& group, double label_smoothing = 0);

/// One or the other: `flow` says whether the logits are sliced, over `group`.
LossSums token_loss_sums(const at::Tensor& logits, const at::Tensor& targets, const Flow& flow,
                         TensorGroup* group, double label_smoothing = 0);

/// How many target tokens have the largest logit; of equal ones the first word counts. Shapes and slices as
/// above; the same on all ranks of `group`.
double right_tokens(const at::Tensor& logits, const at::Tensor& targets, const Flow& flow,
                    TensorGroup* group);

}  // namespace dtrain::models
