#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace dtrain::models::exported {

/// Bytes of a record.
class Record {
 public:
  Record(std::shared_ptr<void> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  const void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }
  std::string_view text() const { return {static_cast<const char*>(memory_.get()), bytes_}; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t bytes_;
};

/// A file of torch.export.save: a zip archive of records that are stored as they are. Nothing is believed: a
/// record is at most as large as the file, and its checksum is verified when it is read.
class Archive {
 public:
  /// Throws Error: exit code 2 where there is no file, 4 where it is no such archive.
  explicit Archive(std::string file);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  const std::string& file() const { return file_; }
  bool has(const std::string& record) const;
  /// Names of all records, without the archive's own name.
  std::vector<std::string> records() const;
  std::int64_t size_of(const std::string& record) const;
  /// Throws Error (exit code 4), naming the record, where it is not there, damaged or larger than `most`.
  Record read(const std::string& record, std::int64_t most = std::int64_t{1} << 50) const;

  /// An Error about the file: exit code 4.
  Error damaged(const std::string& problem) const;

 private:
  Error larger_than_file(const std::string& record) const;

  std::string file_;
  std::int64_t bytes_ = 0;  // of the file
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
};

/// Writes such an archive. `name`: the folder inside it that all records lie in.
class ArchiveWriter {
 public:
  explicit ArchiveWriter(const std::string& file);
  ~ArchiveWriter();
  ArchiveWriter(const ArchiveWriter&) = delete;
  ArchiveWriter& operator=(const ArchiveWriter&) = delete;
  void add(const std::string& record, std::string_view bytes);
  /// Ends the file. Throws Error (exit code 4) where it could not be written whole.
  void finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace dtrain::models::exported
