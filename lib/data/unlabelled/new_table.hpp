#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/shards/column.hpp"
#include "data/shards/dataset.hpp"
#include "data/unlabelled/unlabelled.hpp"

namespace dtrain::data {

/// Rows of a CSV file as inputs like those that `trained.columns` describes: float32 [n, columns]. What the
/// training left out is left out where it is there, and what was a gap in it is one. `remarks`: such columns,
/// and gaps in columns that had none in the training. Throws data_error, see read_unlabelled.
std::shared_ptr<const Column> read_new_table(const DatasetInfo& trained, const UnlabelledOptions& options,
                                             std::vector<std::string>& remarks);

}  // namespace dtrain::data
