#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

enum class Loss { cross_entropy, mse, mae };

/// Sum over samples of -log softmax(logits)[target], and the number of rightly classified ones. With class
/// weights each sample counts as much as its class in loss and weight, once in correct; with label smoothing
/// e the target is 1 - e of that class and e / classes of each: both as in PyTorch's cross_entropy.
/// Shapes: `logits` [n, classes], `targets` int64 [n]. Throws Error (exit code 3) for shapes that do not fit.
LossSums cross_entropy_sums(const at::Tensor& logits, const at::Tensor& targets,
                            const TrainingLoss& how = {});

/// Sum over samples of the squared (mse) or absolute (mae) error, each sample's the mean over its elements.
/// Shapes: `outputs` [n, ...] and `targets` with as many elements, of any floating type.
LossSums regression_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets);

/// By kind.
LossSums loss_sums(Loss loss, const at::Tensor& outputs, const at::Tensor& targets);

/// `cross_entropy`, `mse` or `mae`.
std::string loss_name(Loss loss);

/// The loss that `facts.loss` names, or else the first of `possible`: those that `model` can be trained with
/// on this dataset. Throws Error (exit code 2), listing them, when the chosen one is not among them. Every
/// model calls it when it is made, so that no choice is passed over in silence.
Loss loss_of(const DatasetFacts& facts, const std::string& model, const std::vector<Loss>& possible);

/// What models of one number or class per sample can be trained with: cross_entropy where there are classes,
/// otherwise mse or mae.
std::vector<Loss> losses_of_task(const DatasetFacts& facts);

}  // namespace dtrain::models
