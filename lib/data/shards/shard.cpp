#include "data/shards/shard.hpp"

#include <algorithm>
#include <system_error>

#include "core/error.hpp"
#include "data/shards/library_column.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"

namespace dtrain::data {
namespace {

constexpr const char* kRestoreShard = "restore the file or stage the dataset again";
constexpr std::size_t kBurstBytes = std::size_t{4}
                                    << 20;  // of HDF5's time at once; the recorder waits for it

h5::File open_checked(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    throw data_error("there is no such file", file.string(), kRestoreShard);
  try {
    return h5::open_file(file.string(), h5::Access::read);
  } catch (const Error& error) {
    throw data_error(error.problem(), file.string(), kRestoreShard);
  }
}

std::vector<std::int64_t> row_shape_of(const h5::Shape& shape) { return {shape.begin() + 1, shape.end()}; }

/// Whether the stored bytes are the rows themselves, cut between rows if at all.
bool readable_in_place(const h5::DatasetInfo& info) {
  if (!info.little_endian || info.other_filters) return false;
  if (info.contiguous) return true;
  return !info.chunk.empty() && std::equal(info.shape.begin() + 1, info.shape.end(), info.chunk.begin() + 1);
}

/// Chunk addresses; no chunks when some were never written, so that HDF5's fill values are needed.
StoredLayout layout_of(const h5::Dataset& dataset, const h5::DatasetInfo& info, std::size_t row_bytes) {
  StoredLayout layout;
  const auto rows = static_cast<std::int64_t>(info.shape[0]);
  if (info.contiguous) {  // in pieces of a megabyte, so that what is kept in memory is read bit by bit
    layout.rows_per_chunk =
        std::max<std::int64_t>(1, static_cast<std::int64_t>((std::size_t{1} << 20) / row_bytes));
    std::uint64_t offset = h5::file_offset(dataset);
    for (std::int64_t row = 0; row < rows; row += layout.rows_per_chunk) {
      layout.chunks.push_back({.file_offset = offset});
      offset += static_cast<std::uint64_t>(layout.rows_per_chunk) * row_bytes;
    }
    return layout;
  }
  layout.rows_per_chunk = static_cast<std::int64_t>(info.chunk[0]);
  const std::vector<h5::ChunkPlace> places = h5::chunk_places(dataset);
  const auto chunks = static_cast<std::size_t>((rows + layout.rows_per_chunk - 1) / layout.rows_per_chunk);
  if (places.size() != chunks) return layout;
  for (const h5::ChunkPlace& place : places)
    layout.chunks.push_back(
        {.file_offset = place.file_offset, .checked = info.fletcher32 && (place.filter_mask & 1U) == 0});
  return layout;
}

/// To look up a chunk's place takes HDF5 a walk over all of them: where they are many it reads them itself,
/// all at once where they are small.
bool has_many_chunks(const h5::DatasetInfo& info) {
  constexpr std::uint64_t kMany = 4096;
  return !info.chunk.empty() && info.shape[0] / info.chunk[0] > kMany;
}

bool has_small_chunks(const h5::DatasetInfo& info, std::size_t row_bytes) {
  constexpr std::uint64_t kSmallBytes = 64 << 10;
  return !info.chunk.empty() && info.chunk[0] * row_bytes < kSmallBytes;
}

constexpr std::uint64_t kAlwaysRead = 64 << 20;
constexpr std::uint64_t kMostPacked = 1100;

/// deflate packs 1032 bytes into one at best: a chunk that was never written takes none.
void require_rows(const h5::Dataset& dataset, const h5::DatasetInfo& info, const std::string& subject) {
  const std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
  const std::uint64_t stored = static_cast<std::uint64_t>(element_count(shape)) * info.element_bytes;
  require(info.chunk.empty() || stored <= std::max(kAlwaysRead, kMostPacked * h5::stored_bytes(dataset)),
          "says that it has more rows than its file holds",
          {.subject = subject, .advice = kRestoreShard, .code = ExitCode::data});
}

/// Through HDF5, which converts and decompresses, in bursts.
std::shared_ptr<const Column> read_converted(const h5::Dataset& dataset, const h5::DatasetInfo& info,
                                             ElementType type, const std::string& subject,
                                             const ColumnOptions& options,
                                             std::unique_lock<std::mutex>& lock) {
  std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
  HostArray array;
  const std::size_t bytes = static_cast<std::size_t>(element_count(shape)) * element_bytes(type);
  if (bytes > options.whole_bytes)
    throw data_error(
        "cannot be read in place and is too large to be read whole", subject,
        "write it uncompressed, little-endian, as uint8, int64 or float32, with chunks of whole rows");
  require_rows(dataset, info, subject);
  array.reset(type, shape);
  if (array.count() == 0) return MemoryColumn::of(std::move(array));
  const std::size_t row_bytes = bytes / static_cast<std::size_t>(shape[0]);
  std::uint64_t burst = std::max<std::uint64_t>(1, kBurstBytes / row_bytes);
  if (!info.chunk.empty()) burst = std::max(burst / info.chunk[0], std::uint64_t{1}) * info.chunk[0];
  for (std::uint64_t row = 0; row < info.shape[0]; row += burst) {
    h5::Shape offset(shape.size(), 0);
    h5::Shape extent = info.shape;
    offset[0] = row;
    extent[0] = std::min(burst, info.shape[0] - row);
    h5::read_slab(dataset, h5::native_type(type), offset, extent,
                  static_cast<std::byte*>(array.data()) + row * row_bytes);
    lock.unlock();  // another thread's turn
    lock.lock();
  }
  return MemoryColumn::of(std::move(array));
}

bool is_number(h5::ElementType type) {
  return type != h5::ElementType::string && type != h5::ElementType::compound &&
         type != h5::ElementType::other && type != h5::ElementType::float16;
}

std::shared_ptr<const Column> open_column(const h5::File& file,
                                          const std::shared_ptr<const ReadOnlyFile>& bytes,
                                          const ArrayRequest& request, const ColumnOptions& options,
                                          h5::Library& library, std::unique_lock<std::mutex>& lock) {
  const std::string subject = bytes->name() + ":" + request.path;
  if (!h5::exists(file.id(), request.path) || h5::kind_of(file.id(), request.path) != h5::ObjectKind::dataset)
    throw data_error("there is no such dataset in the file", subject, "check its name with h5ls");
  const h5::Dataset dataset = h5::open_dataset(file.id(), request.path);
  h5::require_own_bytes(file.id(), dataset);
  const h5::DatasetInfo info = h5::info(dataset);
  if (info.shape.empty()) throw data_error("has no rows: it is a single value", subject, "give an array");
  if (!is_number(info.type))
    throw data_error("does not hold numbers that dtrain reads", subject, "write uint8, integers or floats");
  const auto match = std::find_if(request.accepted.begin(), request.accepted.end(),
                                  [&](ElementType type) { return info.type == type; });
  const bool floating = info.type == h5::ElementType::float32 || info.type == h5::ElementType::float64;
  const bool wants_whole = std::ranges::none_of(
      request.accepted, [](ElementType accepted) { return accepted == ElementType::float32; });
  if (floating && wants_whole)
    throw data_error("holds floating-point numbers where whole numbers belong", subject,
                     "write integers there, or stage the dataset again");
  const ElementType type =
      match == request.accepted.end() ? conversion_for(floating, request.accepted) : *match;
  const std::size_t row_bytes =
      static_cast<std::size_t>(element_count(row_shape_of(info.shape))) * element_bytes(type);
  require(!info.contiguous || row_bytes == 0 || info.shape[0] <= bytes->bytes() / row_bytes,
          "says that it has more rows than its file has room for",
          {.subject = subject, .advice = kRestoreShard, .code = ExitCode::data});
  const bool as_it_is =
      match != request.accepted.end() && info.shape[0] > 0 && row_bytes > 0 && readable_in_place(info);
  if (as_it_is && has_many_chunks(info) && !has_small_chunks(info, row_bytes) && options.few_reads) {
    require_rows(dataset, info, subject);
    return std::make_shared<LibraryColumn>(bytes->name(), request.path, type, row_shape_of(info.shape),
                                           static_cast<std::int64_t>(info.shape[0]), library);
  }
  if (as_it_is && !(has_many_chunks(info) && has_small_chunks(info, row_bytes))) {
    StoredLayout layout = layout_of(dataset, info, row_bytes);
    if (!layout.chunks.empty())
      return std::make_shared<FileColumn>(bytes, request.path, type, row_shape_of(info.shape),
                                          static_cast<std::int64_t>(info.shape[0]), std::move(layout),
                                          options.keep);
  }
  return read_converted(dataset, info, type, subject, options, lock);
}

}  // namespace

void check_shard(const std::filesystem::path& file, const ShardExpectation& expected, h5::Library& library) {
  const auto lock = library.lock();
  const h5::File shard = open_checked(file);
  const auto expect = [&](bool holds, const std::string& problem) {
    require(holds, problem, {.subject = file.string(), .advice = kRestoreShard, .code = ExitCode::data});
  };
  const hid_t root = shard.id();
  try {
    for (const char* name : {"format", "version", "split", "first_sample", "sample_count"})
      expect(h5::has_attribute(root, name), std::string("has no attribute ") + name + ", so it is no shard");
    expect(h5::read_string_attribute(root, "format") == kShardFormat,
           std::string("has another format than ") + kShardFormat);
    const std::int64_t version = h5::read_int_attribute(root, "version");
    expect(version == kShardVersion, "has version " + std::to_string(version) + " but this dtrain reads " +
                                         std::to_string(kShardVersion));
    const std::string split = h5::read_string_attribute(root, "split");
    expect(split == expected.split, "belongs to split '" + split + "', not '" + expected.split + "'");
    const std::int64_t first = h5::read_int_attribute(root, "first_sample");
    expect(first == expected.first_sample, "begins with sample " + std::to_string(first) +
                                               " but dataset.json has " +
                                               std::to_string(expected.first_sample));
    const std::int64_t count = h5::read_int_attribute(root, "sample_count");
    expect(count == expected.samples, "holds " + std::to_string(count) + " samples but dataset.json has " +
                                          std::to_string(expected.samples));
    if (h5::has_attribute(root, "dataset")) {
      const std::string dataset = h5::read_string_attribute(root, "dataset");
      expect(dataset == expected.dataset,
             "belongs to dataset '" + dataset + "', not '" + expected.dataset + "'");
    }
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) throw;
    throw data_error(error.problem(), error.subject(), kRestoreShard);
  }
}

std::vector<std::shared_ptr<const Column>> open_columns(const std::filesystem::path& file,
                                                        const std::vector<ArrayRequest>& requests,
                                                        h5::Library& library, const ColumnOptions& options) {
  std::vector<std::shared_ptr<const Column>> columns;  // may need the lock when they are destroyed
  columns.reserve(requests.size());
  auto lock = library.lock();
  const h5::File shard = open_checked(file);
  const auto bytes = std::make_shared<const ReadOnlyFile>(file);
  try {
    for (const ArrayRequest& request : requests)
      columns.push_back(open_column(shard, bytes, request, options, library, lock));
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) throw;
    throw data_error(error.problem(), error.subject(), kRestoreShard);
  }
  return columns;
}

}  // namespace dtrain::data
