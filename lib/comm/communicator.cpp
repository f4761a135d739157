#include "comm/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/mpi_check.hpp"
#include "comm/ulfm.hpp"

namespace dtrain::comm {
namespace {

constexpr std::size_t kLongestMessage = std::size_t{1} << 30;  // bytes: MPI counts in int

std::mutex open_mutex;
std::vector<MPI_Comm> open_handles;  // not freed

template <typename T>
T reduce_one(MPI_Comm comm, T value, MPI_Datatype type, MPI_Op op) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &value, 1, type, op, comm), "MPI_Allreduce");
  return value;
}

template <typename T>
void reduce_sum(MPI_Comm comm, std::span<T> values, MPI_Datatype type) {
  const int count = checked_int(values.size(), "all_reduce_sum");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), count, type, MPI_SUM, comm), "MPI_Allreduce");
}

}  // namespace

Communicator::Communicator(MPI_Comm handle) : handle_(handle) {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
  const std::scoped_lock lock(open_mutex);
  open_handles.push_back(handle_);
}

Communicator::~Communicator() {
  if (handle_ == MPI_COMM_NULL || std::uncaught_exceptions() > 0) return;
  {
    const std::scoped_lock lock(open_mutex);
    std::erase(open_handles, handle_);
  }
  MPI_Comm_free(&handle_);
}

void Communicator::revoke_all() noexcept {
  const std::scoped_lock lock(open_mutex);
  for (const MPI_Comm handle : open_handles) ulfm::revoke(handle);
  open_handles.clear();
}

void Communicator::swap(Communicator& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
}

Communicator Communicator::duplicate(MPI_Comm parent) {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &handle), "MPI_Comm_dup");
  return Communicator(handle);
}

Communicator Communicator::split(int color, int key) const {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(handle_, color, key, &handle), "MPI_Comm_split");
  return Communicator(handle);
}

Communicator Communicator::split_by_shared_memory() const {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &handle),
            "MPI_Comm_split_type");
  return Communicator(handle);
}

void Communicator::barrier() const { check_mpi(MPI_Barrier(handle_), "MPI_Barrier"); }

void Communicator::patient_barrier() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(handle_, &request), "MPI_Ibarrier");
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test of a barrier");
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Communicator::all_reduce_sum(std::span<float> values) const { reduce_sum(handle_, values, MPI_FLOAT); }
void Communicator::all_reduce_sum(std::span<double> values) const { reduce_sum(handle_, values, MPI_DOUBLE); }
void Communicator::all_reduce_sum(std::span<std::int64_t> values) const {
  reduce_sum(handle_, values, MPI_INT64_T);
}

std::int64_t Communicator::max(std::int64_t value) const {
  return reduce_one(handle_, value, MPI_INT64_T, MPI_MAX);
}
std::int64_t Communicator::min(std::int64_t value) const {
  return reduce_one(handle_, value, MPI_INT64_T, MPI_MIN);
}
double Communicator::max(double value) const { return reduce_one(handle_, value, MPI_DOUBLE, MPI_MAX); }

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&value, 1, MPI_INT64_T, values.data(), 1, MPI_INT64_T, handle_), "MPI_Allgather");
  return values;
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  const std::vector<std::int64_t> lengths = all_gather(static_cast<std::int64_t>(text.size()));
  std::vector<int> counts;
  std::vector<int> offsets;
  std::size_t total = 0;
  for (const std::int64_t length : lengths) {
    counts.push_back(checked_int(static_cast<std::size_t>(length), "all_gather of texts"));
    offsets.push_back(checked_int(total, "all_gather of texts"));
    total += static_cast<std::size_t>(length);
  }
  std::string joined(total, '\0');
  check_mpi(MPI_Allgatherv(text.data(), counts[static_cast<std::size_t>(rank_)], MPI_CHAR, joined.data(),
                           counts.data(), offsets.data(), MPI_CHAR, handle_),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    texts.push_back(
        joined.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(counts[rank])));
  }
  return texts;
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT64_T, root, handle_), "MPI_Bcast");
  std::string received = rank_ == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  broadcast_bytes(std::as_writable_bytes(std::span(received)), root);
  return received;
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) const {
  check_mpi(MPI_Bcast(bytes.data(), checked_int(bytes.size(), "broadcast"), MPI_BYTE, root, handle_),
            "MPI_Bcast");
}

void Communicator::send_bytes(std::span<const std::byte> bytes, int to) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kLongestMessage))) {
    const auto length = static_cast<int>(std::min(bytes.size(), kLongestMessage));
    check_mpi(MPI_Send(bytes.data(), length, MPI_BYTE, to, 0, handle_), "MPI_Send");
  }
}

void Communicator::receive_bytes(std::span<std::byte> bytes, int from) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kLongestMessage))) {
    const auto length = static_cast<int>(std::min(bytes.size(), kLongestMessage));
    check_mpi(MPI_Recv(bytes.data(), length, MPI_BYTE, from, 0, handle_, MPI_STATUS_IGNORE), "MPI_Recv");
  }
}

}  // namespace dtrain::comm
