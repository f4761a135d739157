#include "data/placement/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/file_descriptor.hpp"
#include "core/error.hpp"
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

void wait_for_all(const NodeTeam& team) {
  if (team.barrier) team.barrier();
}

void fill_part(const Column& column, const NodeTeam& team, std::byte* out) {
  const Range part = part_of(column.rows(), team.local_rank, team.local_size);
  column.read(part.begin, part.size(), out + static_cast<std::size_t>(part.begin) * column.row_bytes());
}

/// Where the first rank that fails says why. Zeros when it is new.
struct Notice {
  std::atomic<int> taken;
  std::array<char, 4000> text;
};

/// Runs actions until one fails, and keeps its error.
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
  const std::optional<Error>& failure() const { return failure_; }

 private:
  std::optional<Error> failure_;
};

void post(const Error& error, Notice& notice) {
  if (notice.taken.exchange(1) != 0) return;
  const std::string text = error_to_text(error);
  std::copy_n(text.begin(), std::min(text.size(), notice.text.size() - 1), notice.text.begin());
}

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
  // Every rank reaches both barriers, whatever happens to it in between.
  const std::string notice_name = name + "-notice";
  const bool first = team.local_rank == 0;
  Attempts attempts;
  std::unique_ptr<Segment> notices;
  std::shared_ptr<Segment> segment;
  if (first) {
    attempts.run([&] { notices = std::make_unique<Segment>(notice_name, sizeof(Notice), true); });
    attempts.run([&] { segment = std::make_shared<Segment>(name, total, true); });
    if (attempts.failure() && notices) post(*attempts.failure(), *reinterpret_cast<Notice*>(notices->data()));
  }
  wait_for_all(team);
  if (!first) {
    attempts.run([&] { notices = std::make_unique<Segment>(notice_name, sizeof(Notice), false); });
    attempts.run([&] { segment = std::make_shared<Segment>(name, total, false); });
  }
  attempts.run([&] {
    for (std::size_t i = 0; i < columns.size(); ++i)
      fill_part(*columns[i], team, segment->data() + begins[i]);
  });
  auto* notice = notices ? reinterpret_cast<Notice*>(notices->data()) : nullptr;
  if (attempts.failure() && notice != nullptr) post(*attempts.failure(), *notice);
  wait_for_all(team);
  if (first) {
    ::shm_unlink(name.c_str());
    ::shm_unlink(notice_name.c_str());
  }
  if (notice != nullptr && notice->taken.load() != 0)
    throw error_from_text(notice->text.data())
        .value_or(data_error("another rank of this node failed", "--staging memory", kMoreRoom));
  if (attempts.failure()) throw *attempts.failure();
  std::vector<std::shared_ptr<const Column>> shared;
  for (std::size_t i = 0; i < columns.size(); ++i)
    shared.push_back(std::make_shared<MemoryColumn>(columns[i]->type(), columns[i]->row_shape(),
                                                    columns[i]->rows(), segment->data() + begins[i],
                                                    segment));
  return shared;
}

}  // namespace dtrain::data
