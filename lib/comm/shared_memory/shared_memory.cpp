#include "comm/shared_memory/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "core/file_descriptor.hpp"

namespace dtrain::comm {
namespace {

/// A name in /dev/shm that is gone with this object, whichever rank made it and whether that one still lives.
class Name {
 public:
  explicit Name(std::string name) : name_(std::move(name)) {}
  ~Name() {
    if (!name_.empty()) ::shm_unlink(name_.c_str());
  }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  const std::string& text() const { return name_; }

 private:
  std::string name_;
};

/// Containers may share /dev/shm but not process ids, hence the random part.
std::string unique_name() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) random = 0;
  return fmt::format("/dtrain-{}-{:016x}", ::getpid(), random);
}

bool agree(const Communicator& local, bool fine) { return local.min(std::int64_t{fine ? 1 : 0}) == 1; }

/// Where the other ranks of a node find an open file of this process, and how they know that it is the one.
struct OpenFile {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;  // negative: this rank has none
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const OpenFile&) const = default;
};

OpenFile place_of(int fd) {
  struct stat facts = {};
  if (fd < 0 || ::fstat(fd, &facts) != 0) return {};
  return {.process = ::getpid(), .descriptor = fd, .device = facts.st_dev, .inode = facts.st_ino};
}

/// The file at `place`, opened by this process as well. In another container the process id may be another
/// process's: what is found there must be the same file.
FileDescriptor open_again(const OpenFile& place) {
  if (place.descriptor < 0) return FileDescriptor();
  const auto path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const OpenFile found = place_of(file.get());
  return found.device == place.device && found.inode == place.inode ? std::move(file) : FileDescriptor();
}

/// A file in /dev/shm that never had a name and that all ranks of `local` have open; negative on every rank
/// where they cannot have one (containers with process ids of their own).
FileDescriptor open_unnamed(const Communicator& local) {
  const bool makes = local.rank() == 0;
  FileDescriptor own(makes ? ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR) : -1);
  OpenFile place = place_of(own.get());
  local.broadcast_bytes(std::as_writable_bytes(std::span(&place, 1)), 0);
  FileDescriptor file = makes ? FileDescriptor(::dup(own.get())) : open_again(place);
  return agree(local, file.is_open()) ? std::move(file) : FileDescriptor();
}

/// The same by a name, which is gone when this returns. Until then the file is empty: a job that is killed
/// meanwhile leaves a name, but no memory, behind.
FileDescriptor open_named(const Communicator& local) {
  const bool makes = local.rank() == 0;
  const std::string chosen = makes ? unique_name() : std::string();
  FileDescriptor own(makes ? ::shm_open(chosen.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR) : -1);
  const Name made(own.is_open() ? chosen : std::string());  // should the next call throw
  const Name name(local.broadcast(made.text(), 0));
  FileDescriptor file = makes || name.text().empty()
                            ? std::move(own)
                            : FileDescriptor(::shm_open(name.text().c_str(), O_RDWR, 0));
  return agree(local, file.is_open()) ? std::move(file) : FileDescriptor();
}

/// A file in /dev/shm that all ranks of `local` have open and that has no name (any more); negative on every
/// rank where they cannot have one.
FileDescriptor open_together(const Communicator& local) {
  FileDescriptor file = open_unnamed(local);
  return file.is_open() ? std::move(file) : open_named(local);
}

}  // namespace

std::size_t SharedMemory::reserved_per_rank(std::size_t bytes_per_rank) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // no two ranks' parts on one
  return (bytes_per_rank + page - 1) / page * page;
}

std::size_t SharedMemory::reserved_for(int ranks, std::size_t bytes_per_rank) {
  return static_cast<std::size_t>(ranks) * reserved_per_rank(bytes_per_rank);
}

std::int64_t SharedMemory::identity() {
  struct stat facts = {};
  if (::stat("/dev/shm", &facts) != 0) return -1 - std::int64_t{::getpid()};  // nothing to share
  std::string kernel;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel;
  const auto mixed = std::hash<std::string>{}(fmt::format("{} {} {}", kernel, facts.st_dev, facts.st_ino));
  return static_cast<std::int64_t>(mixed >> 1U);
}

std::optional<SharedMemory> SharedMemory::create(const Communicator& local, std::size_t bytes_per_rank) {
  const std::size_t part = reserved_per_rank(bytes_per_rank);
  const std::size_t total = reserved_for(local.size(), bytes_per_rank);
  const FileDescriptor file = open_together(local);
  if (!file.is_open()) return std::nullopt;
  // Reserving now turns a full /dev/shm into an answer instead of a SIGBUS later, and each rank reserving
  // its own part puts that part on its own NUMA node.
  const off_t offset = static_cast<off_t>(part * static_cast<std::size_t>(local.rank()));
  const bool reserved = ::posix_fallocate(file.get(), offset, static_cast<off_t>(part)) == 0;
  SharedMapping mapping = reserved ? SharedMapping(file, total) : SharedMapping();
  if (!agree(local, !mapping.is_empty())) return std::nullopt;
  return SharedMemory(std::move(mapping), part);
}

}  // namespace dtrain::comm
