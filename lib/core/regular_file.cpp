#include "core/regular_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/own_place.hpp"

namespace dtrain {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Error other_kind(const std::filesystem::path& path, mode_t mode, ExitCode code) {
  return {fmt::format("is {}, not a file", kind_of(mode)),
          {.subject = path.string(), .advice = "give a regular file", .code = code}};
}

/// Another user that may not read a file of this user's could have it read and passed on by a link to it.
Error foreign_link(const std::filesystem::path& path, uid_t owner, ExitCode code) {
  return {fmt::format("is a link that another user (uid {}) has laid to a file that is not theirs", owner),
          {.subject = path.string(), .advice = "name the file itself, or another one", .code = code}};
}

bool may_be_theirs(uid_t owner, const struct stat& file) {
  return is_trusted_owner(owner) || file.st_uid == owner || (file.st_uid != ::geteuid() && ::geteuid() != 0);
}

Error failure(const char* what, const std::filesystem::path& path, int reason, ExitCode code) {
  return {fmt::format("{} ({})", what, std::generic_category().message(reason)),
          {.subject = path.string(), .advice = "check the path and its permissions", .code = code}};
}

}  // namespace

void require_regular_file(const std::filesystem::path& path, ExitCode code) {
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0) return;
  if (!S_ISREG(facts.st_mode)) throw other_kind(path, facts.st_mode, code);
  struct stat name = {};
  if (::lstat(path.c_str(), &name) == 0 && S_ISLNK(name.st_mode) && !may_be_theirs(name.st_uid, facts))
    throw foreign_link(path, name.st_uid, code);
}

void require_writable_place(const std::filesystem::path& path, ExitCode code) {
  require_regular_file(path, code);
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) != 0 && errno == ENAMETOOLONG)
    throw failure("cannot be written", path, ENAMETOOLONG, code);
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  require(std::filesystem::is_directory(folder, ignored), "its folder is not there",
          {.subject = path.string(), .advice = "make the folder, or name another file", .code = code});
}

FileDescriptor open_regular_file(const std::filesystem::path& path, ExitCode code) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) {
    const int reason = errno;
    require_regular_file(path, code);  // a socket cannot be opened at all
    throw failure("cannot be opened", path, reason, code);
  }
  struct stat facts = {};
  struct stat name = {};
  const bool is_link = ::lstat(path.c_str(), &name) == 0 && S_ISLNK(name.st_mode);
  const int rc = ::fstat(file.get(), &facts);
  const int reason = errno;
  const bool own = rc == 0 && (!is_link || may_be_theirs(name.st_uid, facts));
  if (own && S_ISREG(facts.st_mode)) return file;
  if (rc == 0 && !own) throw foreign_link(path, name.st_uid, code);
  if (rc != 0) throw failure("cannot be examined", path, reason, code);
  throw other_kind(path, facts.st_mode, code);
}

std::string read_regular_file(const std::filesystem::path& path, std::size_t most_bytes, ExitCode code) {
  const FileDescriptor file = open_regular_file(path, code);
  std::string text;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  ssize_t got = 1;
  int reason = 0;
  while (got > 0 && text.size() <= most_bytes) {  // it may grow meanwhile: its size is not asked for
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    do {
      got = ::read(file.get(), text.data() + before, kPiece);
    } while (got < 0 && errno == EINTR);
    reason = errno;
    text.resize(before + static_cast<std::size_t>(got < 0 ? 0 : got));
  }
  if (got < 0) throw failure("cannot be read", path, reason, code);
  if (text.size() <= most_bytes) return text;
  throw Error(fmt::format("is larger than {} MiB", most_bytes >> 20U),
              {.subject = path.string(), .advice = "check that it is the file meant", .code = code});
}

}  // namespace dtrain
