#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/shards/array.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::data {

/// The root attributes of a shard.
struct ShardHeader {
  std::string dataset;
  std::string split;
  std::int64_t shard_index = 0;
  std::int64_t shard_count = 1;
  std::int64_t first_sample = 0;
  std::int64_t sample_count = 0;
};

/// One array of a shard, and where its rows come from.
struct ShardArray {
  std::string path;
  ElementType type = ElementType::uint8;
  std::vector<std::int64_t> row_shape;
  std::int64_t rows = 0;
  /// Fills `out` with rows [first, first + count).
  std::function<void(std::int64_t first, std::int64_t count, std::byte* out)> read;
};

/// `SPLIT-00000-of-00008.h5`
std::string shard_file_name(const std::string& split, std::int64_t index, std::int64_t count);

/// Writes a whole shard: chunks of whole rows and about 1 MiB, each with Fletcher-32, uncompressed. `wrote`
/// is called with each burst's bytes. Throws data_error naming the file, also when the disk is full.
void write_shard(const std::filesystem::path& file, const ShardHeader& header,
                 const std::vector<ShardArray>& arrays, h5::Library& library,
                 const std::function<void(std::size_t bytes)>& wrote);

}  // namespace dtrain::data
