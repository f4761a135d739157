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
#include <utility>

namespace dtrain::comm {
namespace {

/// A file descriptor that closes itself.
class SegmentFile {
 public:
  explicit SegmentFile(int fd) : fd_(fd) {}
  ~SegmentFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  SegmentFile(SegmentFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SegmentFile& operator=(SegmentFile&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

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
SegmentFile open_again(const OpenFile& place) {
  if (place.descriptor < 0) return SegmentFile(-1);
  const auto path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
  SegmentFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const OpenFile found = place_of(file.get());
  return found.device == place.device && found.inode == place.inode ? std::move(file) : SegmentFile(-1);
}

/// A file in /dev/shm that never had a name and that all ranks of `local` have open; negative on every rank
/// where they cannot have one (containers with process ids of their own).
SegmentFile open_unnamed(const Communicator& local) {
  const bool makes = local.rank() == 0;
  SegmentFile own(makes ? ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR) : -1);
  OpenFile place = place_of(own.get());
  local.broadcast_bytes(std::as_writable_bytes(std::span(&place, 1)), 0);
  SegmentFile file = makes ? SegmentFile(::dup(own.get())) : open_again(place);
  return agree(local, file.get() >= 0) ? std::move(file) : SegmentFile(-1);
}

/// The same by a name, which is gone when this returns. Until then the file is empty: a job that is killed
/// meanwhile leaves a name, but no memory, behind.
SegmentFile open_named(const Communicator& local) {
  const bool makes = local.rank() == 0;
  const std::string chosen = makes ? unique_name() : std::string();
  SegmentFile own(makes ? ::shm_open(chosen.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR) : -1);
  const Name made(own.get() >= 0 ? chosen : std::string());  // should the next call throw
  const Name name(local.broadcast(made.text(), 0));
  SegmentFile file =
      makes || name.text().empty() ? std::move(own) : SegmentFile(::shm_open(name.text().c_str(), O_RDWR, 0));
  return agree(local, file.get() >= 0) ? std::move(file) : SegmentFile(-1);
}

/// A file in /dev/shm that all ranks of `local` have open and that has no name (any more); negative on every
/// rank where they cannot have one.
SegmentFile open_together(const Communicator& local) {
  SegmentFile file = open_unnamed(local);
  return file.get() >= 0 ? std::move(file) : open_named(local);
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
  const SegmentFile file = open_together(local);
  if (file.get() < 0) return std::nullopt;
  // Reserving now turns a full /dev/shm into an answer instead of a SIGBUS later, and each rank reserving
  // its own part puts that part on its own NUMA node.
  const off_t offset = static_cast<off_t>(part * static_cast<std::size_t>(local.rank()));
  const bool reserved = ::posix_fallocate(file.get(), offset, static_cast<off_t>(part)) == 0;
  void* base = MAP_FAILED;
  if (reserved) base = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  SharedMemory memory(base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base), total, part);
  if (!agree(local, base != MAP_FAILED)) return std::nullopt;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      total_bytes_(other.total_bytes_),
      part_bytes_(other.part_bytes_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  SharedMemory taken(std::move(other));
  std::swap(base_, taken.base_);
  std::swap(total_bytes_, taken.total_bytes_);
  std::swap(part_bytes_, taken.part_bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) ::munmap(base_, total_bytes_);
}

}  // namespace dtrain::comm
