#pragma once

#include "data/shards/dataset.hpp"
#include "models/model.hpp"

namespace dtrain::train {

/// Throws Error (exit code 2) with both shapes where a model that tells classes apart gives logits for other
/// places than those for which the dataset has classes: [n, classes] for one class of each sample, [n,
/// classes, H, W] for a class of each of H x W places; or where a program that computes its own loss takes
/// targets of another shape than the dataset's. Nothing is computed.
void require_same_places(const models::Model& model, const data::DatasetInfo& info);

}  // namespace dtrain::train
