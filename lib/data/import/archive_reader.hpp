#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace dtrain::data {

/// How a file on disk holds what it holds.
enum class Packing {
  plain,    ///< It is what it is.
  single,   ///< One file, packed with gzip or xz.
  archive,  ///< A tar, itself plain or packed, or a zip.
};

/// Bytes by which a file's packing is known.
inline constexpr std::size_t kPackingBytes = 512;  // a tar's header

/// Known by the first bytes, `start`; by the name only for a tar without a magic number. Reads on only where
/// those are compressed, to see what is inside. Throws data_error when that cannot be read.
Packing packing_of(const std::filesystem::path& file, std::string_view start);

/// The members of an archive in the order in which they are stored, or the one file that was packed. Never
/// writes anywhere. Source: libarchive's interface, archive_read(3).
class ArchiveReader {
 public:
  /// `packing`: single or archive. Throws data_error.
  ArchiveReader(const std::filesystem::path& file, Packing packing);
  ~ArchiveReader();
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  /// Goes on to the next file; folders are passed over. False at the end. Throws data_error: damaged,
  /// truncated, a path that leads out of the folder, a link or a device.
  bool next();

  const std::string& member() const { return member_; }  ///< Its path, without a leading `./`.

  /// What is left of the file, at most `most` bytes. Throws data_error, also where the archive unpacks to far
  /// more than its size.
  std::string read(std::size_t most);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string member_;
};

}  // namespace dtrain::data
