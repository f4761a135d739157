#include "comm/mpi/unsettled.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace dtrain::comm {
namespace {

/// Lives as long as the process: MPI may write to it at any time.
class Unsettled {
 public:
  static Unsettled& of_process() {
    static auto* const unsettled = new Unsettled;
    return *unsettled;
  }

  void add(MPI_Request request, const void* data, std::size_t bytes, Owner owner) {
    const std::scoped_lock lock(mutex_);
    forget_settled();
    entries_.push_back({request, static_cast<const std::byte*>(data), bytes, std::move(owner)});
  }

  bool touch(const void* data, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    forget_settled();
    const auto* const first = static_cast<const std::byte*>(data);
    for (const Entry& entry : entries_) {
      if (first < entry.data + entry.bytes && entry.data < first + bytes) return true;
    }
    return false;
  }

 private:
  struct Entry {
    MPI_Request request;
    const std::byte* data;
    std::size_t bytes;
    Owner owner;
  };

  void forget_settled() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    std::erase_if(entries_, [](Entry& entry) {
      int complete = 0;
      const bool failed = MPI_Test(&entry.request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS;
      return complete != 0 || (failed && entry.request == MPI_REQUEST_NULL);
    });
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace

void abandon(MPI_Request& request, const void* data, std::size_t bytes, Owner owner) noexcept {
  if (request == MPI_REQUEST_NULL) return;
  int complete = 0;
  MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
  if (request == MPI_REQUEST_NULL) return;
  Unsettled::of_process().add(std::exchange(request, MPI_REQUEST_NULL), data, bytes, std::move(owner));
}

bool in_use(const void* data, std::size_t bytes) noexcept {
  return Unsettled::of_process().touch(data, bytes);
}

}  // namespace dtrain::comm
