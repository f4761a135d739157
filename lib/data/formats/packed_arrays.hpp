#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/import/originals.hpp"

namespace dtrain::data {

/// What `--inputs a=/x,b=/z` names, as pairs of an input and its array; empty for the name of one array.
/// Throws usage_error for a pair without one of both, and for a name that is given twice.
std::vector<std::pair<std::string, std::string>> named_arrays(const std::string& inputs);

/// The types that several inputs are read as.
const std::vector<ElementType>& packed_types();

/// Several inputs of each sample in one row of numbers, one behind the other.
struct PackedRows {
  std::shared_ptr<const Column> rows;  ///< float32 [n, F].
  std::vector<InputInfo> inputs;
};

/// Packs what `named` names, each with its array in `columns`. Bytes of images [C, H, W] become values in [0,
/// 1], whole numbers ids, which float32 has up to 2^24 exactly; all else stays as it is. Reads all of them.
/// Throws data_error naming `subject` and the array: other numbers of samples, ids that are too large, rows
/// that do not fit in memory.
PackedRows pack_inputs(const std::vector<std::pair<std::string, std::string>>& named,
                       const std::vector<std::shared_ptr<const Column>>& columns, const std::string& subject);

/// The same with targets. Fills inputs, and what from_arrays fills.
Originals from_packed(const std::vector<std::pair<std::string, std::string>>& named,
                      const std::vector<std::shared_ptr<const Column>>& columns,
                      std::shared_ptr<const Column> targets, const std::string& subject,
                      const std::string& targets_subject, const std::string& task);

}  // namespace dtrain::data
