#pragma once

#include <cstddef>

#include "core/file_descriptor.hpp"

namespace dtrain {

/// Memory of a file that several processes map, for as long as this object lives. The file may be closed and
/// may lose its name meanwhile.
class SharedMapping {
 public:
  SharedMapping() = default;
  /// Maps the first `bytes` of `file`, to read and write. Reserve them before (posix_fallocate): to touch a
  /// page that cannot be had ends the process with SIGBUS. Where it fails the mapping is empty and errno says
  /// why.
  SharedMapping(const FileDescriptor& file, std::size_t bytes) noexcept;
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  bool is_empty() const noexcept { return data_ == nullptr; }
  std::byte* data() const noexcept { return data_; }  ///< Null when empty.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace dtrain
