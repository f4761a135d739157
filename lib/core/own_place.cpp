#include "core/own_place.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "core/file_descriptor.hpp"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// Whether this user namespace has a user of that number. Those it does not have are all shown as one.
bool is_mapped(uid_t user) {
  std::ifstream map("/proc/self/uid_map");
  std::int64_t first = 0;
  std::int64_t outside = 0;
  std::int64_t count = 0;
  bool any = false;
  while (map >> first >> outside >> count) {
    any = true;
    if (user >= first && user - first < count) return true;
  }
  return !any;  // without /proc nothing is known
}

const char* laid_kind(mode_t mode) {
  if (S_ISLNK(mode)) return "a link";
  if (S_ISFIFO(mode)) return "a FIFO";
  return S_ISREG(mode) ? "a file" : "something else than a file";
}

/// `folder/` names what a link leads to, not the link.
fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

bool is_open_to_all(const fs::path& folder) {
  struct stat facts = {};
  return ::stat(folder.c_str(), &facts) == 0 && (facts.st_mode & S_IWOTH) != 0;
}

}  // namespace

bool is_trusted_owner(uid_t owner) { return owner == ::geteuid() || owner == 0 || !is_mapped(owner); }

void require_own_folder(const fs::path& folder, const ErrorContext& context) {
  const fs::path path = without_slash(folder);
  struct stat facts = {};
  if (::lstat(path.c_str(), &facts) != 0 || is_trusted_owner(facts.st_uid)) return;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const bool is_open = !S_ISLNK(facts.st_mode) && (facts.st_mode & S_IWOTH) != 0;
  if (!is_open && !is_open_to_all(parent)) return;
  throw Error(
      fmt::format("{} another user's (uid {}) and open to others: they could replace what is written there",
                  S_ISLNK(facts.st_mode) ? "is a link," : "is", facts.st_uid),
      context);
}

void claim_file(const fs::path& path, ExitCode code) {
  const auto refuse = [&](const char* kind, int reason) {
    throw Error(fmt::format("cannot be written: {} lies there that cannot be removed ({})", kind,
                            std::generic_category().message(reason)),
                {.subject = path.string(), .advice = "name another folder or file", .code = code});
  };
  constexpr mode_t kMode = 0666;  // less the umask, as other files have it
  constexpr int kAttempts = 10;   // each fails because another rank of this user has just made it
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    struct stat facts = {};
    if (::lstat(path.c_str(), &facts) == 0) {
      const bool own = S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() && facts.st_nlink == 1;
      if (own || S_ISDIR(facts.st_mode)) return;  // to open a folder as a file says what is wrong
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) refuse(laid_kind(facts.st_mode), errno);
    }
    const FileDescriptor made(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
    if (made.is_open() || errno != EEXIST) return;  // to open it says what is wrong
  }
  refuse("what another process keeps making", EEXIST);
}

std::filesystem::path free_name(const std::filesystem::path& path) {
  std::filesystem::path name = path;
  for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(name)); ++number) {
    name = path;
    name += fmt::format("-{}", number);
  }
  return name;
}

}  // namespace dtrain
