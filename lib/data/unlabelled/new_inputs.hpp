#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/shards/column.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// New samples of several inputs, packed as those that `trained` describes: float32 [n, F]. `from`: an HDF5
/// or .npz file, or a folder of .npy files. `inputs`: `NAME=ARRAY,...` for each input; empty: the arrays have
/// the inputs' names. Throws usage_error for names that are no inputs, or not all of them; data_error naming
/// the array for another shape or kind of numbers than in training, ids that it did not have, and no sample.
std::shared_ptr<const Column> read_new_inputs(const DatasetInfo& trained, const std::filesystem::path& from,
                                              const std::string& inputs, h5::Library& library);

}  // namespace dtrain::data
