#include "core/shared_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <sstream>
#include <utility>

namespace dtrain {
namespace {

/// A name in /dev/shm that is gone with this object, whichever process made it and whether that one still
/// lives.
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

/// Where the other processes of a node find an open file of this one, and how they know that it is the one.
struct OpenFile {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;  // negative: there is none
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};

OpenFile place_of(int fd) {
  struct stat facts = {};
  if (fd < 0 || ::fstat(fd, &facts) != 0) return {};
  return {.process = ::getpid(), .descriptor = fd, .device = facts.st_dev, .inode = facts.st_ino};
}

std::string to_text(const OpenFile& place) {
  return fmt::format("{} {} {} {}", place.process, place.descriptor, place.device, place.inode);
}

OpenFile from_text(const std::string& text) {
  OpenFile place;
  std::istringstream words(text);
  words >> place.process >> place.descriptor >> place.device >> place.inode;
  return words ? place : OpenFile();
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

/// Closed on every process where one cannot do without a name (containers with process ids of their own).
FileDescriptor open_unnamed(const FileTeam& team) {
  FileDescriptor own(team.makes ? ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR) : -1);
  const OpenFile place = from_text(team.of_maker(to_text(place_of(own.get()))));
  FileDescriptor file = team.makes ? FileDescriptor(::dup(own.get())) : open_again(place);
  return team.all(file.is_open()) ? std::move(file) : FileDescriptor();
}

/// The same by a name, which is gone when this returns. Until then the file is empty: a job that is killed
/// meanwhile leaves a name, but no memory, behind.
FileDescriptor open_named(const FileTeam& team) {
  const std::string chosen = team.makes ? unique_name() : std::string();
  FileDescriptor own(team.makes ? ::shm_open(chosen.c_str(), O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR)
                                : -1);
  const Name made(own.is_open() ? chosen : std::string());  // should the next call throw
  const Name name(team.of_maker(made.text()));
  FileDescriptor file = team.makes || name.text().empty()
                            ? std::move(own)
                            : FileDescriptor(::shm_open(name.text().c_str(), O_RDWR, 0));
  return team.all(file.is_open()) ? std::move(file) : FileDescriptor();
}

}  // namespace

SharedMapping::SharedMapping(const FileDescriptor& file, std::size_t bytes) noexcept {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  SharedMapping taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

FileDescriptor open_shared_file(const FileTeam& team) {
  FileDescriptor file = open_unnamed(team);
  return file.is_open() ? std::move(file) : open_named(team);
}

}  // namespace dtrain
