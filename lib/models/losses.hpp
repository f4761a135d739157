#pragma once

#include <ATen/core/Tensor.h>

#include "models/model.hpp"

namespace dtrain::models {

enum class Loss { cross_entropy, mse, mae };

/// Sum over samples of -log softmax(logits)[target], and the number of rightly classified ones.
/// Shapes: `logits` [n, classes], `targets` int64 [n]. Throws Error (exit code 3) for shapes that do not fit.
LossSums cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets);

/// Sum over samples of the squared (mse) or absolute (mae) error, each sample's the mean over its elements.
/// Shapes: `outputs` [n, ...] and `targets` with as many elements, of any floating type.
LossSums regression_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets);

/// By kind.
LossSums loss_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets);

/// cross_entropy where there are classes, otherwise mse.
Loss default_loss(const DatasetFacts& facts);

}  // namespace dtrain::models
