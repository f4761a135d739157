#pragma once

#include <map>
#include <string>

#include "models/model.hpp"

namespace dtrain::models::exported {

/// The registry's entry for the program in `file`, which torch.export.save wrote: `make` reads it. Its
/// recipe is empty: the options' own defaults.
///
/// The model's layers are runs of the program's nodes (program_layer.hpp), its parameters and buffers have
/// the names of the module's state_dict, and start as they are in the file. The loss is `--loss` of the
/// program's first output: cross_entropy where the targets are classes ([n] with outputs [n, classes], or [n,
/// ...] with outputs [n, classes, ...]) or words ([n, T] with outputs [n, T, words]), mse or mae of numbers,
/// or `model`: the program takes the targets as its last input and returns their mean loss. `make` throws
/// Error: exit code 4 for a damaged file; 2 for what cannot be trained, naming the operator, the module and
/// the line of Python, or both shapes where the outputs do not fit the dataset.
Registration registration(const std::string& file);

/// Names in the module's state_dict that stand for a parameter of another name (tied weights), with that
/// name. Empty for models that are not from a file.
std::map<std::string, std::string> tied_names(const Model& model);

}  // namespace dtrain::models::exported
