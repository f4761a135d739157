#include "checkpoint/file_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/own_place.hpp"
#include "core/regular_file.hpp"

namespace dtrain::checkpoint {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int code) {
  const std::string problem = std::string(what) + " (" + std::generic_category().message(code) + ")";
  const bool full = code == ENOSPC || code == EDQUOT;
  throw checkpoint_error(
      problem, path.string(),
      full ? "free some space, or write to another place" : "check the path and its permissions");
}

int flags_of(RawFile::Access access) {
  switch (access) {
    case RawFile::Access::read:
      return O_RDONLY | O_CLOEXEC;
    case RawFile::Access::change:
      return O_RDWR | O_CLOEXEC;
    case RawFile::Access::create:
      break;
  }
  return O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
}

FileDescriptor open_to_write(const std::filesystem::path& path, RawFile::Access access) {
  if (access == RawFile::Access::create) claim_file(path, ExitCode::checkpoint);
  return FileDescriptor(::open(path.c_str(), flags_of(access), 0644));
}

}  // namespace

RawFile::RawFile(std::filesystem::path path, Access access)
    : path_(std::move(path)),
      file_(access == Access::read ? open_regular_file(path_, ExitCode::checkpoint)
                                   : open_to_write(path_, access)) {
  if (!file_.is_open()) fail("cannot be opened", path_, errno);
}

std::int64_t RawFile::bytes() const {
  struct stat facts = {};
  if (fstat(file_.get(), &facts) != 0) fail("cannot be examined", path_, errno);
  return facts.st_size;
}

void RawFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(file_.get(), out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be read", path_, errno);
    if (n == 0) throw checkpoint_error("ends too early", path_.string(), "take another checkpoint");
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void RawFile::write_at(std::int64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t n = pwrite(file_.get(), data.data(), data.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written", path_, n == 0 ? ENOSPC : errno);
    data = data.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void RawFile::sync() const {
  if (fsync(file_.get()) != 0) fail("cannot be synced", path_, errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) fail("cannot be opened", folder, errno);
  if (fsync(opened.get()) != 0 && errno != EINVAL)
    fail("cannot be synced", folder, errno);  // EINVAL: a file system without it
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const RawFile file(path, RawFile::Access::read);
  if (static_cast<std::uint64_t>(file.bytes()) > most_bytes)
    throw checkpoint_error(fmt::format("has {} bytes, more than such a file can have", file.bytes()),
                           path.string(), "take another checkpoint");
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const RawFile file(path, RawFile::Access::create);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
}

}  // namespace dtrain::checkpoint
