#pragma once

#include <string>

#include "record/predictions_file.hpp"

namespace dtrain::record {

/// Writes a row for each sample, below a header: `row` (counted from 1) or, where they have names, `file`; of
/// a classifier `class` (its name), `probability` and the probability of each class, `p(NAME)`; of others
/// `prediction`, or `output0`, `output1`, ... where a sample has several. Numbers are written so that reading
/// them gives the same value. The file replaces one of that name when it is whole. Throws Error (exit code
/// 1).
void write_predictions_csv(const std::string& path, const Predictions& predictions);

}  // namespace dtrain::record
