#pragma once

#include <memory>

#include "models/exported/operations/given.hpp"

namespace dtrain::models::exported {

/// scaled_dot_product_attention with dropout, in its parts: softmax(Q K^T scale + mask), dropped with
/// dtrain's mask, times V. `heads`: which of the whole's heads, dim 1, this rank has. Source: the operator's
/// documentation in torch.nn.functional.
std::unique_ptr<Operation> attention_operation(const Given& given, const Flow& heads = {});

}  // namespace dtrain::models::exported
