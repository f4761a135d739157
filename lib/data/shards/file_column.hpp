#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/file_descriptor.hpp"
#include "data/shards/column.hpp"

namespace dtrain::data {

/// A file open for pread.
class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::filesystem::path& path);  ///< Throws data_error.

  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bytes_; }  ///< When it was opened.

  /// Fills `out` from `offset`. Throws data_error when the file ends before or cannot be read.
  void read(std::uint64_t offset, std::size_t count, void* out) const;
  /// The same, continuing into a second buffer, in one system call.
  void read(std::uint64_t offset, std::size_t count, void* out, std::size_t more, void* more_out) const;

 private:
  FileDescriptor file_;
  std::string name_;
  std::uint64_t bytes_ = 0;
};

/// A run of whole rows that lie one after another in the file.
struct StoredChunk {
  std::uint64_t file_offset = 0;
  bool checked = false;  ///< Four bytes of Fletcher-32 follow the chunk.
};

/// How an array lies in its file: chunk i holds rows [i rows_per_chunk, (i + 1) rows_per_chunk); the last one
/// is stored whole too when it is checked.
struct StoredLayout {
  std::int64_t rows_per_chunk = 1;
  std::vector<StoredChunk> chunks;
};

/// An array of a file, read with pread alone. A chunk's checksum is verified when it is first touched, once
/// per process. With Keep::memory verified chunks stay in memory.
class FileColumn final : public Column {
 public:
  enum class Keep { nothing, memory };

  /// `array` names the array inside the file in messages. Throws data_error when a chunk lies beyond the end
  /// of the file.
  FileColumn(std::shared_ptr<const ReadOnlyFile> file, std::string array, ElementType type,
             std::vector<std::int64_t> row_shape, std::int64_t rows, StoredLayout layout, Keep keep);

  void read(std::int64_t first, std::int64_t count, std::byte* out) const override;
  void gather(std::span<const std::int64_t> rows, std::byte* out) const override;
  void load() const override;

 private:
  /// Rows [first, first + count) of one chunk.
  void read_chunk_part(std::int64_t chunk, std::int64_t first, std::int64_t count, std::byte* out) const;
  /// The first touch of a chunk: reads it whole, verifies it, keeps it or copies the part asked for.
  void admit(std::int64_t chunk, std::int64_t first, std::int64_t count, std::byte* out) const;
  void verify(std::int64_t chunk, std::span<const std::byte> bytes, const unsigned char* trailer) const;
  std::int64_t rows_in(std::int64_t chunk) const;

  std::shared_ptr<const ReadOnlyFile> file_;
  std::string array_;
  StoredLayout layout_;
  std::size_t chunk_bytes_;                         // of a full chunk
  mutable std::vector<std::atomic<bool>> ready_;    // verified (and, if kept, in memory_)
  mutable std::atomic<std::size_t> unread_chunks_;  // not yet in memory_, with Keep::memory
  mutable std::mutex admission_;                    // one first touch at a time
  HostArray memory_;                                // [rows * row_bytes] with Keep::memory
  std::byte* kept_ = nullptr;                       // its data, or null
};

}  // namespace dtrain::data
