#include "data/placement/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/shared_mapping.hpp"
#include "core/slice.hpp"
#include "data/placement/shared_error.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kSegmentAlignment = 64;
constexpr const char* kMoreRoom = "use --staging none, or give /dev/shm more room";

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
}

/// A mapping that all ranks of the team share.
class Segment {
 public:
  /// The creating rank makes the name, the others open it.
  Segment(const std::string& name, std::size_t bytes, bool creating) {
    if (creating) ::shm_unlink(name.c_str());  // of a run that was killed
    const int flags = creating ? O_RDWR | O_CREAT | O_EXCL : O_RDWR;
    const FileDescriptor file(::shm_open(name.c_str(), flags, S_IRUSR | S_IWUSR));
    // Reserved now: a page that cannot be had later would end the process with SIGBUS.
    int reason = file.is_open() ? 0 : errno;
    // Another user may have made an object of that name; of one that is too short a page would be missing.
    struct stat facts {};
    if (reason == 0 && !creating && ::fstat(file.get(), &facts) != 0) reason = errno;
    const bool ours = creating || (facts.st_uid == ::geteuid() && facts.st_size >= static_cast<off_t>(bytes));
    if (reason == 0 && !ours) reason = EACCES;
    if (reason == 0 && creating) reason = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (reason == 0) {
      memory_ = SharedMapping(file, bytes);
      if (memory_.is_empty()) reason = errno;
    }
    if (reason != 0) {
      if (creating) ::shm_unlink(name.c_str());
      throw data_error("needs " + std::to_string(bytes >> 20) +
                           " MiB of shared memory, which failed: " + std::strerror(reason),
                       "--staging memory", kMoreRoom);
    }
  }

  std::byte* data() const { return memory_.data(); }

 private:
  SharedMapping memory_;
};

void fill_part(const Column& column, const NodeTeam& team, std::byte* out) {
  const Range part = part_of(column.rows(), team.local_rank, team.local_size);
  column.read(part.begin, part.size(), out + static_cast<std::size_t>(part.begin) * column.row_bytes());
}

/// Runs actions until one of the node fails, and keeps its error.
class Attempts {
 public:
  template <typename Action>
  void run(Action&& action) {
    if (failure_) return;
    try {
      action();
    } catch (const Error& error) {
      failure_ = error;
    }
  }
  /// What the first rank with an error met counts on all ranks. Collective over the node.
  void share_first(const NodeTeam& team) { failure_ = first_error(team, failure_); }
  const std::optional<Error>& failure() const { return failure_; }

 private:
  std::optional<Error> failure_;
};

}  // namespace

std::vector<std::shared_ptr<const Column>> in_node_memory(
    const std::vector<std::shared_ptr<const Column>>& columns, const std::string& name,
    const NodeTeam& team) {
  std::vector<std::size_t> begins;
  std::size_t total = 0;
  for (const auto& column : columns) {
    begins.push_back(total);
    total +=
        aligned(std::max<std::size_t>(static_cast<std::size_t>(column->rows()) * column->row_bytes(), 1));
  }
  // Every rank reaches both exchanges, whatever happens to it in between.
  const bool first = team.local_rank == 0;
  Attempts attempts;
  std::shared_ptr<Segment> segment;
  if (first) attempts.run([&] { segment = std::make_shared<Segment>(name, total, true); });
  attempts.share_first(team);
  if (!first) attempts.run([&] { segment = std::make_shared<Segment>(name, total, false); });
  attempts.run([&] {
    for (std::size_t i = 0; i < columns.size(); ++i)
      fill_part(*columns[i], team, segment->data() + begins[i]);
  });
  attempts.share_first(team);
  if (first) ::shm_unlink(name.c_str());
  if (attempts.failure()) throw Error(*attempts.failure());
  std::vector<std::shared_ptr<const Column>> shared;
  for (std::size_t i = 0; i < columns.size(); ++i)
    shared.push_back(std::make_shared<MemoryColumn>(columns[i]->type(), columns[i]->row_shape(),
                                                    columns[i]->rows(), segment->data() + begins[i],
                                                    segment));
  return shared;
}

}  // namespace dtrain::data
