#include "data/placement/own_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/own_place.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = "lock";

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw fs::filesystem_error(what, path, std::error_code(errno, std::generic_category()));
}

std::string prefix() { return fmt::format("dtrain-{}-", ::geteuid()); }

/// A folder, not a link to one, that this user alone may enter.
bool is_own(const fs::path& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  return folder.is_open() && ::fstat(folder.get(), &facts) == 0 && facts.st_uid == ::geteuid() &&
         (facts.st_mode & 0077U) == 0;
}

/// By name, so that two processes take the same one.
std::vector<fs::path> all_own(const fs::path& parent) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.path().filename().string().starts_with(prefix()) && is_own(entry.path()))
      found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

/// `process 1234 (dtrain)` where the lock's holder is known.
std::string holder_of(int descriptor) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0)
    return "another process";
  return fmt::format("process {}", lock.l_pid);
}

}  // namespace

void OwnFolder::require_safe(const fs::path& parent) {
  struct stat facts {};
  if (::stat(parent.c_str(), &facts) != 0) return;  // to open it says so
  const bool open_to_all = (facts.st_mode & S_IWOTH) != 0;
  const bool sticky = (facts.st_mode & S_ISVTX) != 0;
  const std::string subject = fmt::format("--staging local={}", parent.string());
  if (open_to_all && !sticky)
    throw usage_error("every user may replace what others have put there", subject,
                      "set its sticky bit (chmod +t), or name another folder");
  if (open_to_all && !is_trusted_owner(facts.st_uid))  // the sticky bit leaves all names to its owner
    throw usage_error(fmt::format("its owner (uid {}) may replace what others have put there", facts.st_uid),
                      subject, "name a folder of your own or of the administrator");
}

OwnFolder OwnFolder::find_or_make(const fs::path& parent) {
  if (const auto found = all_own(parent); !found.empty()) return OwnFolder(found.front());
  std::string made = (parent / (prefix() + "XXXXXX")).string();
  if (::mkdtemp(made.data()) == nullptr) fail("cannot be made", parent);
  // Of two processes that found none both have made one: both take the first.
  const auto all = all_own(parent);
  if (all.empty() || all.front() == made) return OwnFolder(made);
  ::rmdir(made.c_str());
  return OwnFolder(all.front());
}

std::optional<OwnFolder> OwnFolder::holding(const fs::path& parent, const std::string& name) {
  for (const fs::path& path : all_own(parent)) {
    std::error_code ignored;
    if (fs::exists(path / name, ignored)) return OwnFolder(path);
  }
  return std::nullopt;
}

OwnFolderLock::OwnFolderLock(const OwnFolder& folder, const LockPatience& patience)
    : file_(folder.path() / kLockFile),
      lock_(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)) {
  if (!lock_.is_open()) return;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const double begin_s = steady_s();
  bool said = false;
  while (::fcntl(lock_.get(), F_SETLK, &lock) != 0) {
    if (errno != EACCES && errno != EAGAIN && errno != EINTR) return;  // no locks on this file system
    const double waited_s = steady_s() - begin_s;
    if (waited_s > patience.limit_s) {
      throw data_error(fmt::format("{} has been copying there for more than {:.0f} s", holder_of(lock_.get()),
                                   patience.limit_s),
                       file_.parent_path().string(), "wait for its end, or name another folder");
    }
    if (!said && waited_s >= patience.silent_s && patience.say) {
      said = true;
      patience.say(fmt::format("waits for {}, which copies into {}", holder_of(lock_.get()),
                               file_.parent_path().string()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool OwnFolderLock::is_good() const {
  if (!lock_.is_open()) return ::access(file_.parent_path().c_str(), W_OK) == 0;
  struct stat facts {};
  return ::fstat(lock_.get(), &facts) == 0 && facts.st_nlink > 0;
}

void OwnFolderLock::remove_folder_if_empty() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(file_.parent_path(), ignored)) {
    if (entry.path() != file_) return;
  }
  ::unlink(file_.c_str());
  ::rmdir(file_.parent_path().c_str());
}

FileDescriptor create_new_file(const fs::path& path, unsigned mode) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.is_open()) fail("cannot be created", path);
  if (::fchmod(file.get(), mode) == 0) return file;
  fail("cannot be given its rights", path);
}

}  // namespace dtrain::data
