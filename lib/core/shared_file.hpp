#pragma once

#include <cstddef>
#include <functional>
#include <string>

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

/// How the processes of a node agree while they open a file together. Each function is called by all of them.
struct FileTeam {
  bool makes = true;                                             ///< True on exactly one process.
  std::function<std::string(const std::string& mine)> of_maker;  ///< What the one that makes the file says.
  std::function<bool(bool fine)> all;                            ///< Whether all of them say true.
};

/// A file in /dev/shm that all processes of the team have open, to read and write, for memory that they
/// share. It is empty. It never has a name where the processes see each other's process ids; else its name is
/// gone when this returns. So no memory stays taken after a crash: reserve it afterwards (posix_fallocate)
/// and map it (SharedMapping). Not open on any process where one of them cannot have it. Collective over the
/// team.
FileDescriptor open_shared_file(const FileTeam& team);

}  // namespace dtrain
