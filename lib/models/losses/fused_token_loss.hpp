#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtrain::models {

/// Whether fused_token_loss() takes such logits here.
bool takes_fused_token_loss(const at::Tensor& logits);

/// The sum over all rows of log sum exp - the target's logit, as token_cross_entropy_sums() without label
/// smoothing, of the first `words` columns of `logits` [n, columns >= words]: fp32, or half precision that is
/// summed in float, row by row. No tensor of the logits' size is made: backward writes the gradient over the
/// logits, whose values are lost, and is called at most once. Shape: `targets` [n] int64, each below `words`,
/// beside the logits. Returns a scalar in float.
at::Tensor fused_token_loss(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words);

}  // namespace dtrain::models
