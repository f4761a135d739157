#include "comm/shared_memory/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "core/shared_file.hpp"

namespace dtrain::comm {
namespace {

bool agree(const Communicator& local, bool fine) { return local.min(std::int64_t{fine ? 1 : 0}) == 1; }

FileTeam team_of(const Communicator& local) {
  return {.makes = local.rank() == 0,
          .of_maker = [&local](const std::string& mine) { return local.broadcast(mine, 0); },
          .all = [&local](bool fine) { return agree(local, fine); }};
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
  const FileDescriptor file = open_shared_file(team_of(local));
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
