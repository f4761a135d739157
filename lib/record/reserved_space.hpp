#pragma once

#include <cstdint>
#include <string>

#include "core/file_descriptor.hpp"

namespace dtrain::record {

/// Asks the file system for room before a burst is written: HDF5, refused in the middle, leaves a file that
/// it cannot open again, and everything recorded before would be lost with it.
class ReservedSpace {
 public:
  /// Throws Error when the file cannot be opened.
  explicit ReservedSpace(const std::string& path);

  /// Room for `bytes` more behind `file_bytes`. Throws Error when the disk is full. A file system that cannot
  /// reserve is only asked what it has.
  void reserve(std::uint64_t file_bytes, std::uint64_t bytes);

  /// Gives back what lies behind `file_bytes`.
  void trim(std::uint64_t file_bytes);

 private:
  bool has_free(std::uint64_t bytes) const;

  std::string path_;
  FileDescriptor file_;
};

}  // namespace dtrain::record
