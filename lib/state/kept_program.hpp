#pragma once

#include <filesystem>
#include <string>

#include "models/model.hpp"

namespace dtrain::state {

/// Writes the file of a model that was read from one, without its weights, into the run's folder, so that its
/// checkpoints can be used when the file is gone: `program/NAME.pt2`, with the hash of its constant tensors
/// in `program/NAME.constants`. Nothing for other models, and where it is there. Throws Error (exit code 4).
void keep_program(const std::string& run_folder, const std::string& model_name, const models::Model& model);

/// What `--model` is for a checkpoint of a run: the file that the run has kept, or `model_name` where it has
/// none.
std::string kept_program(const std::filesystem::path& checkpoint, const std::string& model_name);

/// Throws Error (exit code 4) unless `model` computes what the model of a checkpoint does, whose program has
/// this hash. Constant tensors are compared with those of the program that the run has kept.
void check_same_program(const std::string& hash, const models::Model& model, const std::string& checkpoint);

}  // namespace dtrain::state
