#include "data/shards/shard_writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/shards/shard.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::int64_t kChunksPerBurst = 4;  // how long the library is held at once

void write_header(const h5::File& file, const ShardHeader& header) {
  h5::write_attribute(file.id(), "format", kShardFormat);
  h5::write_attribute(file.id(), "version", kShardVersion);
  h5::write_attribute(file.id(), "dataset", header.dataset);
  h5::write_attribute(file.id(), "split", header.split);
  h5::write_attribute(file.id(), "shard_index", header.shard_index);
  h5::write_attribute(file.id(), "shard_count", header.shard_count);
  h5::write_attribute(file.id(), "first_sample", header.first_sample);
  h5::write_attribute(file.id(), "sample_count", header.sample_count);
}

void write_array(const h5::File& file, const ShardArray& array, h5::Library::Lock& lock,
                 const std::function<void(std::size_t)>& wrote) {
  const std::size_t row_bytes =
      static_cast<std::size_t>(element_count(array.row_shape)) * element_bytes(array.type);
  const std::int64_t chunk_rows =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(kChunkBytes / std::max<std::size_t>(row_bytes, 1)),
                               1, std::max<std::int64_t>(array.rows, 1));
  h5::Shape shape = {static_cast<std::uint64_t>(array.rows)};
  shape.insert(shape.end(), array.row_shape.begin(), array.row_shape.end());
  h5::Shape chunk = shape;
  chunk[0] = static_cast<std::uint64_t>(chunk_rows);
  const h5::Datatype type = h5::file_type(array.type);
  const h5::Dataset dataset = h5::create_chunked(file.id(), array.path, type.id(), shape,
                                                 {.chunk = chunk, .checksum = h5::Checksum::fletcher32});
  std::vector<std::byte> burst(static_cast<std::size_t>(std::min(chunk_rows * kChunksPerBurst, array.rows)) *
                               row_bytes);
  for (std::int64_t row = 0; row < array.rows; row += chunk_rows * kChunksPerBurst) {
    const std::int64_t count = std::min(chunk_rows * kChunksPerBurst, array.rows - row);
    lock.unlock();
    array.read(row, count, burst.data());
    lock.lock();
    h5::Shape offset(shape.size(), 0);
    h5::Shape extent = shape;
    offset[0] = static_cast<std::uint64_t>(row);
    extent[0] = static_cast<std::uint64_t>(count);
    h5::write_slab(dataset, h5::native_type(array.type), offset, extent, burst.data());
    wrote(static_cast<std::size_t>(count) * row_bytes);
  }
}

}  // namespace

std::string shard_file_name(const std::string& split, std::int64_t index, std::int64_t count) {
  return fmt::format("{}-{:05d}-of-{:05d}.h5", split, index, count);
}

void write_shard(const std::filesystem::path& path, const ShardHeader& header,
                 const std::vector<ShardArray>& arrays, h5::Library& library,
                 const std::function<void(std::size_t bytes)>& wrote) {
  auto lock = library.lock();
  try {
    h5::File file = h5::create_file(path.string());
    write_header(file, header);
    for (const ShardArray& array : arrays) write_array(file, array, lock, wrote);
    h5::flush(file);  // here a full disk speaks
    file.close();
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) throw;
    throw data_error(error.problem(), path.string(), "free some space, check permissions and stage again");
  }
}

}  // namespace dtrain::data
