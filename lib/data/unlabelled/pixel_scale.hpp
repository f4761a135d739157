#pragma once

#include <string>

#include "data/shards/column.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// Throws data_error, naming `subject`, where new images are not of the scale of the training's: bytes, which
/// become values in [0, 1], for a training on floats that by `trained.mean` and `trained.std_dev` did not lie
/// there; and floats far from them, such as 0 to 255 against 0 to 1. Does nothing where the training's mean
/// is not known.
void require_scale_of_training(const DatasetInfo& trained, const Column& pixels, const std::string& subject);

}  // namespace dtrain::data
