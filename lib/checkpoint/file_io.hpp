#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/file_descriptor.hpp"

namespace dtrain::checkpoint {

/// A file open for raw reading or writing. Every call throws Error (exit
/// code 4) naming the file; a full disk is called so.
class RawFile {
 public:
  enum class Access { read, change, create };
  RawFile(std::filesystem::path path, Access access);

  std::int64_t bytes() const;
  /// All of `out`; a file that is too short is an Error.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;
  void write_at(std::int64_t offset, std::span<const std::byte> data) const;
  void sync() const;  ///< Until the disk has it.

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

/// Makes the names in `folder` durable. Throws Error (exit code 4).
void sync_folder(const std::filesystem::path& folder);

/// All of a file. Throws Error (exit code 4).
std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes = std::uint64_t{1} << 30);

/// Creates `path` with `text` and syncs it. Throws Error (exit code 4).
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace dtrain::checkpoint
