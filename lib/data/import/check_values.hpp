#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/column.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// Of the arrays of a task, those that are larger are not looked through.
struct CheckedSizes {
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
};

/// Looks through the arrays of `task` (in the order of arrays_of_task): numbers must be finite, targets among
/// the classes, tokens in the vocabulary, ids among those of their input. `classes`, `vocabulary` (of the
/// source language for pairs) and `target_vocabulary`: how many there are. Throws data_error that names
/// `subject`, the first sample at fault, counted from `first_sample`, and the value.
struct ValueCheck {
  std::string task;
  std::int64_t classes = 0;
  std::int64_t vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  std::vector<InputInfo> inputs;  ///< Of a row of several.

  void operator()(const std::vector<std::shared_ptr<const Column>>& columns, const std::string& subject,
                  std::int64_t first_sample = 0, const CheckedSizes& sizes = {}) const;
};

ValueCheck value_check(const DatasetInfo& info);

}  // namespace dtrain::data
