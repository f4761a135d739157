#include "comm/mpi/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/mpi/meeting.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/watch/deadline.hpp"
#include "comm/watch/waiting.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Above those of groups' collectives and of meetings; MPI promises tags up to 32767.
constexpr int kDataTag = 32'110;
constexpr int kMessageTag = 0;
constexpr std::size_t kLongestMessage = std::size_t{64} << 20;  // bytes: each is copied
constexpr double kDataPauseS = 100e-6;                          // messages move only while MPI is called
constexpr double kPatientPauseS = 1e-3;

std::mutex open_mutex;
std::vector<MPI_Comm> open_handles;  // not freed

/// All ranks, the root first.
Party everyone(MPI_Comm comm, int size, int rank, int root = 0) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::rotate(ranks, ranks.begin() + root);
  return {.channel = {comm, kDataTag}, .ranks = std::move(ranks), .index = (rank - root + size) % size};
}

/// Around a call that MPI offers only blocking. All ranks have come to it: it hangs only if one is lost or
/// suspended in it.
class Guard {
 public:
  Guard(double limit_s, const std::string& what) {
    if (limit_s > 0) deadline_.emplace(limit_s, what);
  }

 private:
  std::optional<Deadline> deadline_;
};

template <typename Test>
void await(MPI_Comm comm, Test test, double limit_s, std::string_view what, std::string_view missing,
           double pause_s) {
  Waiting waiting(limit_s, pause_s);
  LossWatch losses(comm, what);
  while (!test()) {
    losses.look();
    if (waiting.pause()) continue;
    throw Error(fmt::format("{} within {} s", missing, limit_s),
                {.subject = std::string(what),
                 .advice = "look at what it does, or raise --watchdog",
                 .code = ExitCode::lost_rank});
  }
}

}  // namespace

Communicator::Communicator(MPI_Comm handle, double limit_s, Allowance allowance)
    : handle_(handle), limit_s_(limit_s), allowance_(std::move(allowance)) {
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
  std::swap(limit_s_, other.limit_s_);
  std::swap(allowance_, other.allowance_);
}

double Communicator::limit_s() const {
  return limit_s_ <= 0 ? 0 : std::max(limit_s_, allowance_->load(std::memory_order_relaxed));
}

void Communicator::check_losses() const { comm::check_losses(handle_, "communication"); }

Communicator Communicator::duplicate(MPI_Comm parent, double limit_s) {
  const double limit_for_all_s = limit_s > 0 ? std::max(limit_s, kUsualLimitS) : 0;  // of what comes before
  meet(parent, "duplicate", limit_for_all_s);
  const Guard guard(limit_for_all_s, "MPI_Comm_dup");
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &handle), "MPI_Comm_dup", parent);
  return {handle, limit_s, std::make_shared<std::atomic<double>>(0)};
}

Communicator Communicator::split(int color, int key) const {
  meet(handle_, "split", limit_s());
  const Guard guard(limit_s(), "MPI_Comm_split");
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(handle_, color, key, &handle), "MPI_Comm_split", handle_);
  return {handle, limit_s_, allowance_};
}

Communicator Communicator::split_by_shared_memory() const {
  meet(handle_, "split_by_shared_memory", limit_s());
  const Guard guard(limit_s(), "MPI_Comm_split_type");
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(handle_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &handle),
            "MPI_Comm_split_type", handle_);
  return {handle, limit_s_, allowance_};
}

void Communicator::barrier() const { meet(handle_, "barrier", limit_s()); }

void Communicator::patient_barrier() const { meet(handle_, "barrier", limit_s(), kPatientPauseS); }

void Communicator::complete(Step& step, std::string_view what) const {
  await(
      handle_, [&] { return step.advance(); }, limit_s(), what, "a rank has come but does not go on",
      kDataPauseS);
}

template <typename T>
void Communicator::reduce(std::span<T> values, ReduceOp op, std::string_view what) const {
  meet(handle_, what, limit_s());
  if (size_ == 1) return;
  const auto step = make_tree_all_reduce(everyone(handle_, size_, rank_), Buffer::of(values), op);
  complete(*step, what);
}

void Communicator::all_reduce_sum(std::span<float> values) const {
  reduce(values, ReduceOp::sum, "all_reduce_sum");
}
void Communicator::all_reduce_sum(std::span<double> values) const {
  reduce(values, ReduceOp::sum, "all_reduce_sum");
}
void Communicator::all_reduce_sum(std::span<std::int64_t> values) const {
  reduce(values, ReduceOp::sum, "all_reduce_sum");
}

std::int64_t Communicator::max(std::int64_t value) const {
  reduce(std::span(&value, 1), ReduceOp::max, "max");
  return value;
}
std::int64_t Communicator::min(std::int64_t value) const {
  reduce(std::span(&value, 1), ReduceOp::min, "min");
  return value;
}
double Communicator::max(double value) const {
  reduce(std::span(&value, 1), ReduceOp::max, "max");
  return value;
}

/// As the sum of what each rank knows.
std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size_));
  values[static_cast<std::size_t>(rank_)] = value;
  reduce(std::span(values), ReduceOp::sum, "all_gather");
  return values;
}

std::vector<std::string> Communicator::all_gather(const std::string& text) const {
  constexpr std::size_t kWord = sizeof(std::int64_t);
  const auto words = [](std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + kWord - 1) / kWord; };
  const std::vector<std::int64_t> lengths = all_gather(static_cast<std::int64_t>(text.size()));
  std::vector<std::size_t> begins = {0};
  for (const std::int64_t length : lengths) begins.push_back(begins.back() + words(length));
  std::vector<std::int64_t> joined(begins.back());
  if (!text.empty())
    std::memcpy(joined.data() + begins[static_cast<std::size_t>(rank_)], text.data(), text.size());
  reduce(std::span(joined), ReduceOp::sum, "all_gather");
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto* const begin = reinterpret_cast<const char*>(joined.data() + begins[rank]);
    texts.emplace_back(begin, static_cast<std::size_t>(lengths[rank]));
  }
  return texts;
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  broadcast_bytes(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string received = rank_ == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  if (length > 0) broadcast_bytes(std::as_writable_bytes(std::span(received)), root);
  return received;
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) const {
  meet(handle_, "broadcast", limit_s());
  if (size_ == 1) return;
  const auto step = make_tree_broadcast(everyone(handle_, size_, rank_, root), bytes);
  complete(*step, "broadcast");
}

void Communicator::send_bytes(std::span<const std::byte> bytes, int to) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kLongestMessage))) {
    const std::size_t length = std::min(bytes.size(), kLongestMessage);
    Transfer transfer = Transfer::send({handle_, kMessageTag}, bytes.data(), length, to);
    await(
        handle_, [&] { return transfer.test(); }, limit_s(), "send",
        fmt::format("rank {} has not taken a message", ulfm::first_rank_of(handle_, to)), kDataPauseS);
  }
}

void Communicator::receive_bytes(std::span<std::byte> bytes, int from) const {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kLongestMessage))) {
    const std::size_t length = std::min(bytes.size(), kLongestMessage);
    Transfer transfer = Transfer::receive({handle_, kMessageTag}, bytes.data(), length, from);
    await(
        handle_, [&] { return transfer.test(); }, limit_s(), "receive",
        fmt::format("rank {} has not sent a message", ulfm::first_rank_of(handle_, from)), kDataPauseS);
  }
}

LongPhase::LongPhase(const Communicator& ranks, double limit_s)
    : allowance_(ranks.allowance_), before_s_(allowance_->exchange(limit_s)) {
  if (before_s_ > limit_s) *allowance_ = before_s_;
}

void LongPhase::end() noexcept {
  if (allowance_) *allowance_ = before_s_;
  allowance_.reset();
}

}  // namespace dtrain::comm
