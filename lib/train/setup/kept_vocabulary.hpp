#pragma once

#include <string>

#include "data/shards/dataset.hpp"
#include "train/config/config.hpp"

namespace dtrain::train {

/// Keeps what a dataset of text says of its tokens, `vocabulary/dataset.json` in the run's folder, so that
/// its checkpoints can be used when the dataset is gone. Nothing for other datasets, and where it is kept
/// already. Throws Error (exit code 4).
void keep_vocabulary(const std::string& run_folder, const data::DatasetInfo& info);

/// A dataset with the vocabulary that config.model.init_from was trained with, as config.data.dataset names
/// one: that of its training, config.data.dataset, while it has this vocabulary, or else what its run keeps.
/// Where neither has it, or the checkpoint does not say which one it needs, config.data.dataset. Throws Error
/// for a kept file that is damaged.
std::string dataset_with_vocabulary(const RunConfig& config);

}  // namespace dtrain::train
