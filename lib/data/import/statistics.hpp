#pragma once

#include <span>
#include <vector>

#include "data/shards/column.hpp"

namespace dtrain::data {

/// Mean and standard deviation (of the whole, not of a sample) per channel.
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> std_dev;  ///< 1 for a channel that never changes, so that it can be divided by.
};

/// Over the given rows; uint8 counts as byte / 255, float32 as it is. The first dim of `sample_shape` [C,
/// ...] is the channels ([F] of a table: each feature is one; [T, F]: the features, the last dim).
ChannelStatistics channel_statistics(const Column& inputs, const std::vector<std::int64_t>& sample_shape,
                                     std::span<const std::int64_t> rows);

/// Over all rows.
ChannelStatistics channel_statistics(const Column& inputs, const std::vector<std::int64_t>& sample_shape);

}  // namespace dtrain::data
