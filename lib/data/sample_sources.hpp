#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/shards/column.hpp"
#include "data/shards/shard.hpp"
#include "data/source.hpp"

namespace dtrain::data {

/// How the samples of a task are laid out in a shard.
enum class SampleLayout {
  dense,   ///< /inputs [n, ...], /targets [n], [n, K] or [n, H, W]
  text,    ///< /tokens [total], /offsets [n + 1], /targets [n]
  pairs,   ///< /source_tokens, /source_offsets, /target_tokens, /target_offsets
  blocks,  ///< /tokens [total], cut into blocks
};
SampleLayout layout_of_task(std::string_view task);

/// The arrays of a shard for a task, in the order in which make_source takes them.
std::vector<ArrayRequest> arrays_of_task(std::string_view task);

/// The samples of a split from the columns of its shards: columns[shard][array], in the order of
/// arrays_of_task. `sample_shape` [T] limits text and is the block length of language modelling. `subject`
/// names the split in messages. `target_shape`: of a dense sample's target (DatasetInfo::stored_target()).
/// Throws data_error when the arrays do not fit each other.
std::shared_ptr<const SampleSource> make_source(
    std::string_view task, const std::vector<std::vector<std::shared_ptr<const Column>>>& columns,
    const std::vector<std::int64_t>& sample_shape, const std::string& subject,
    const std::vector<std::int64_t>& target_shape = {});

}  // namespace dtrain::data
