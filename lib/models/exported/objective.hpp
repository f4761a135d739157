#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models::exported {

/// What a program is trained for: its loss, and what is counted in evaluations. A model without layers, whose
/// loss and columns an exported model has.
/// `outputs`: the shape of the program's first output for two samples of shape `inputs`. Throws Error (exit
/// code 2), naming the shapes, where they do not fit the dataset or `--loss`.
std::unique_ptr<Model> make_objective(const std::string& name, const DatasetFacts& facts, const Shape& inputs,
                                      const Shape& outputs);

/// Whether the program returns its loss itself: `--loss model`.
bool is_own_loss(const DatasetFacts& facts);

}  // namespace dtrain::models::exported
