#include "comm/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace dtrain::comm {
namespace {

constexpr std::size_t kAlign = std::size_t{64} << 10;  // keeps parts of different ranks off common pages

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A name in /dev/shm that is gone with this object, whichever rank made it and whether that one still lives:
/// when all have mapped the memory, or when one was lost before.
class Name {
 public:
  explicit Name(std::string name) : name_(std::move(name)) {}
  ~Name() { ::shm_unlink(name_.c_str()); }
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

int create_file(const std::string& name, std::size_t bytes) {
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

bool agree(const Communicator& local, bool fine) { return local.min(std::int64_t{fine ? 1 : 0}) == 1; }

}  // namespace

std::optional<SharedMemory> SharedMemory::create(const Communicator& local, std::size_t bytes_per_rank) {
  const std::size_t part = (bytes_per_rank + kAlign - 1) / kAlign * kAlign;
  const std::size_t total = part * static_cast<std::size_t>(local.size());
  const bool creates = local.rank() == 0;
  const Name name(local.broadcast(creates ? unique_name() : std::string(), 0));
  int fd = creates ? create_file(name.text(), total) : -1;
  local.barrier();
  if (!creates) fd = ::shm_open(name.text().c_str(), O_RDWR, 0);
  const Descriptor file(fd);
  // Reserving now turns a full /dev/shm into an answer instead of a SIGBUS later, and each rank reserving
  // its own part puts that part on its own NUMA node.
  const off_t offset = static_cast<off_t>(part * static_cast<std::size_t>(local.rank()));
  const bool reserved = fd >= 0 && ::posix_fallocate(fd, offset, static_cast<off_t>(part)) == 0;
  void* base = MAP_FAILED;
  if (reserved) base = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const bool all_mapped = agree(local, base != MAP_FAILED);
  if (all_mapped) return SharedMemory(static_cast<std::byte*>(base), total, part);
  if (base != MAP_FAILED) ::munmap(base, total);
  return std::nullopt;
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
