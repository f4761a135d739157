#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/shards/column.hpp"
#include "data/shards/file_column.hpp"

namespace dtrain::h5 {
class Library;
}

namespace dtrain::data {

inline constexpr const char* kShardFormat = "dtrain.shard";
inline constexpr std::int64_t kShardVersion = 1;

/// What a shard's root attributes must say.
struct ShardExpectation {
  std::string dataset;
  std::string split;
  std::int64_t first_sample = 0;
  std::int64_t samples = 0;
};

/// An array of an HDF5 file and what we can use it as.
struct ArrayRequest {
  std::string path;                   ///< E.g. `/inputs`.
  std::vector<ElementType> accepted;  ///< Others are converted; see conversion_for.
};

struct ColumnOptions {
  FileColumn::Keep keep = FileColumn::Keep::nothing;
  std::size_t whole_bytes = std::size_t{4} << 30;  ///< Limit for an array that cannot be read in place.
  bool few_reads = false;  ///< Rows are read once or twice: of many chunks no list is made before.
};

/// Throws data_error, naming the file and the attribute, unless the shard is what dataset.json promises.
void check_shard(const std::filesystem::path& file, const ShardExpectation& expected, h5::Library& library);

/// Columns of the arrays of an HDF5 file, in the order of the requests. Takes the chunks' addresses once; no
/// HDF5 call is made afterwards, but with `few_reads` for arrays of many large chunks (LibraryColumn): then
/// `library` must outlive the columns, which are destroyed without its lock. What cannot be read in place
/// (compressed, chunked across samples, other number types) is read whole, now. Throws data_error: missing
/// array, scalar, too large to be read whole.
std::vector<std::shared_ptr<const Column>> open_columns(const std::filesystem::path& file,
                                                        const std::vector<ArrayRequest>& requests,
                                                        h5::Library& library, const ColumnOptions& options);

}  // namespace dtrain::data
