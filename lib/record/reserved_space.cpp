#include "record/reserved_space.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::record {

ReservedSpace::ReservedSpace(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
  require(file_.is_open(), std::string("cannot be opened (") + std::strerror(errno) + ")", {.subject = path});
}

void ReservedSpace::reserve(std::uint64_t file_bytes, std::uint64_t bytes) {
  if (::fallocate(file_.get(), 0, static_cast<off_t>(file_bytes), static_cast<off_t>(bytes)) == 0) return;
  int reason = errno;
  if (reason == EOPNOTSUPP && !has_free(bytes)) reason = ENOSPC;
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  if (!full) return;
  trim(file_bytes);  // what it got of the room
  throw Error(std::string("cannot grow (") + std::strerror(reason) + ")",
              {.subject = path_, .advice = "free disk space; what was recorded before is kept"});
}

bool ReservedSpace::has_free(std::uint64_t bytes) const {
  struct statvfs facts = {};
  return ::fstatvfs(file_.get(), &facts) != 0 || facts.f_bavail * facts.f_frsize >= bytes;
}

void ReservedSpace::trim(std::uint64_t file_bytes) {
  // Room that is not given back only makes the file longer.
  if (::ftruncate(file_.get(), static_cast<off_t>(file_bytes)) != 0) return;
}

}  // namespace dtrain::record
