#pragma once

#include <memory>

#include "models/exported/operations/given.hpp"

namespace dtrain::models::exported {

/// scaled_dot_product_attention with dropout, in its parts: softmax(Q K^T scale + mask), dropped with
/// dtrain's mask, times V. `heads`: which of the whole's heads, dim 1, this rank has. Source: the operator's
/// documentation in torch.nn.functional.
std::unique_ptr<Operation> attention_operation(const Given& given, const Flow& heads = {});

/// The same without dropout, by LibTorch's kernel, with a mask of real numbers. LibTorch takes another
/// kernel, with other rounding, where the mask asks for a gradient. `learns_mask`: it does in every training
/// pass, also in one that runs again later and makes no graph now; else in none.
std::unique_ptr<Operation> masked_attention_operation(const Given& given, bool learns_mask);

}  // namespace dtrain::models::exported
