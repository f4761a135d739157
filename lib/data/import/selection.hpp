#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/shards/column.hpp"
#include "data/shards/shard_writer.hpp"

namespace dtrain::data {

/// The arrays of a shard that holds the samples `ids` of an original split (`columns` in arrays_of_task's
/// order). Rows of images and tables are read when they are written; text is collected here. For language
/// modelling `ids` must be consecutive blocks of `sample_shape[0]` tokens; the token after the last block
/// comes along. The result refers to `columns` and `ids`, which must outlive it.
std::vector<ShardArray> select_arrays(std::string_view task,
                                      const std::vector<std::shared_ptr<const Column>>& columns,
                                      const std::vector<std::int64_t>& sample_shape,
                                      std::span<const std::int64_t> ids);

/// Samples of an original split.
std::int64_t sample_count(std::string_view task, const std::vector<std::shared_ptr<const Column>>& columns,
                          const std::vector<std::int64_t>& sample_shape);

}  // namespace dtrain::data
