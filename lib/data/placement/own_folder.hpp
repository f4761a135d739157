#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/file_descriptor.hpp"

namespace dtrain::data {

/// How long to wait for another process, and what to call meanwhile.
struct LockPatience {
  double limit_s = 1800;
  double silent_s = 5;  ///< Then `say` is called, once.
  std::function<void(const std::string&)> say;
};

/// A folder of this user's own (mode 0700) below one that other users may write to, such as /tmp. Its name
/// ends in letters drawn by chance, so that others cannot make it first; a later run finds it again as the
/// one that belongs to this user.
class OwnFolder {
 public:
  /// Throws usage_error (exit code 2) where other users could put another folder in the place of ours:
  /// `parent` is writable by all without the sticky bit, or another user's. Every process finds the same.
  static void require_safe(const std::filesystem::path& parent);

  /// The one there is, or a new one. Throws std::filesystem::filesystem_error.
  static OwnFolder find_or_make(const std::filesystem::path& parent);

  /// The one that holds a file `name`, which another process of this user has put there.
  static std::optional<OwnFolder> holding(const std::filesystem::path& parent, const std::string& name);

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit OwnFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// Keeps other processes of this user out of a folder of its own, from its construction to its end. Where the
/// file system knows no locks it keeps nothing out.
class OwnFolderLock {
 public:
  /// Throws data_error naming the process that holds it when it is not let go within the limit.
  OwnFolderLock(const OwnFolder& folder, const LockPatience& patience);

  /// Whether the folder is still there: the one before may have removed it.
  bool is_good() const;

  /// Removes the lock's file, and the folder where nothing else is in it.
  void remove_folder_if_empty() const;

 private:
  std::filesystem::path file_;
  FileDescriptor lock_;
};

/// Creates a file that is not there, following no link; `mode` is not cut by the umask. Throws
/// std::filesystem::filesystem_error.
FileDescriptor create_new_file(const std::filesystem::path& path, unsigned mode);

}  // namespace dtrain::data
