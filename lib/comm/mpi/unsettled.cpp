#include "comm/mpi/unsettled.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "comm/mpi/ulfm.hpp"

namespace dtrain::comm {
namespace {

// More than the one that a call adds, so that settled ones leave faster than others come. All of them at each
// call would be n * n tests for n requests: a message of thousands of pieces would keep its rank for minutes.
constexpr int kTestedPerCall = 2;

struct Entry {
  MPI_Request request;
  bool is_send;
  int receiver;  // of a send, as MPI_COMM_WORLD names it
  const std::byte* data;
  std::size_t bytes;
  Owner owner;
};

/// Whether MPI is done with it.
bool test(Entry& entry) {
  int complete = 0;
  const int code = entry.is_send ? ulfm::test_send(&entry.request, &complete, MPI_COMM_WORLD, entry.receiver)
                                 : MPI_Test(&entry.request, &complete, MPI_STATUS_IGNORE);
  return complete != 0 || (code != MPI_SUCCESS && entry.request == MPI_REQUEST_NULL);
}

/// Lives as long as the process: MPI may write to it at any time.
class Unsettled {
 public:
  static Unsettled& of_process() {
    static auto* const unsettled = new Unsettled;
    return *unsettled;
  }

  void add(Entry entry) {
    const std::scoped_lock lock(mutex_);
    entries_.push_back(std::move(entry));
    test_some();
  }

  bool touch(const void* data, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    test_some();
    const auto* const first = static_cast<const std::byte*>(data);
    std::size_t i = 0;
    while (i < entries_.size()) {
      const Entry& entry = entries_[i];
      const bool overlaps = first < entry.data + entry.bytes && entry.data < first + bytes;
      if (!overlaps) {
        ++i;
      } else if (is_settled(entries_[i])) {
        forget(i);
      } else {
        return true;
      }
    }
    return false;
  }

 private:
  static bool is_settled(Entry& entry) {
    int finalised = 0;
    MPI_Finalized(&finalised);
    return finalised == 0 && test(entry);
  }

  void forget(std::size_t i) {
    std::swap(entries_[i], entries_.back());
    entries_.pop_back();
  }

  /// The next ones in turn.
  void test_some() {
    for (int tested = 0; tested < kTestedPerCall && !entries_.empty(); ++tested) {
      if (next_ >= entries_.size()) next_ = 0;
      if (is_settled(entries_[next_])) {
        forget(next_);
      } else {
        ++next_;
      }
    }
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

void give_up(Entry entry) {
  if (!test(entry)) Unsettled::of_process().add(std::move(entry));
}

}  // namespace

void abandon(MPI_Request& request, const void* data, std::size_t bytes, Owner owner) noexcept {
  const MPI_Request left = std::exchange(request, MPI_REQUEST_NULL);
  if (left == MPI_REQUEST_NULL) return;
  give_up({left, false, 0, static_cast<const std::byte*>(data), bytes, std::move(owner)});
}

void abandon_send(MPI_Request& request, Receiver receiver, const void* data, std::size_t bytes,
                  Owner owner) noexcept {
  const MPI_Request left = std::exchange(request, MPI_REQUEST_NULL);
  if (left == MPI_REQUEST_NULL || ulfm::is_gone(receiver.comm, receiver.rank)) return;
  const int rank = ulfm::first_rank_of(receiver.comm, receiver.rank);
  give_up({left, true, rank, static_cast<const std::byte*>(data), bytes, std::move(owner)});
}

bool in_use(const void* data, std::size_t bytes) noexcept {
  return Unsettled::of_process().touch(data, bytes);
}

}  // namespace dtrain::comm
