#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/import/originals.hpp"
#include "data/import/stage.hpp"

namespace dtrain::data {

/// Arrays in a .npz file, as numpy.savez and savez_compressed write it: those that options.inputs and
/// options.targets name, `x` and `y`, or for each split one, `x_train`, `y_train`, `x_val`, `x_test` (or
/// `train_x` and so on). Throws data_error and usage_error, which list the arrays that are there.
Originals read_npz(const StageOptions& options);

/// The arrays of these names, each as one of the types `accepted`. Throws data_error that lists the arrays
/// that are there.
std::vector<std::shared_ptr<const Column>> read_npz_arrays(const std::filesystem::path& file,
                                                           const std::vector<std::string>& names,
                                                           const std::vector<ElementType>& accepted);

}  // namespace dtrain::data
