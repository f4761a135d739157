#include "comm/watch/health.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr std::int64_t kNodeIntervalNs = 1'000'000;
constexpr std::int64_t kJobIntervalNs = 10'000'000;
constexpr std::int64_t kNobody = 0;  // of the failed word; otherwise +-(1 + first rank): + dead, - gave up

}  // namespace

struct alignas(64) Health::Line {
  pthread_mutex_t alive;             ///< Robust; held by its rank for life.
  std::atomic<std::int64_t> failed;  ///< Of local rank 0's line only.
  std::array<char, 1000> why;        ///< This rank gave up; ended by 0.
};

Health::Line& Health::line(int local_rank) const {
  return *reinterpret_cast<Line*>(memory_->part(local_rank));
}

Health::Health(const Communicator& world, const Communicator& local, std::vector<int> first_ranks,
               bool recovery)
    : world_(world), local_rank_(local.rank()), first_ranks_(std::move(first_ranks)) {
  for (const std::int64_t rank : local.all_gather(std::int64_t{first_rank()})) {
    local_ranks_.push_back(static_cast<int>(rank));
  }
  ask_mpi_ = recovery && ulfm::available();
  if (local.size() < 2) return;
  memory_ = SharedMemory::create(local, bytes_per_rank());
  require(memory_.has_value(), "the ranks of this node cannot share memory",
          {.subject = "/dev/shm", .advice = "make room there, or start with a larger --shm-size"});
  Line& mine = *new (memory_->part(local_rank_)) Line;
  mine.failed.store(kNobody);
  const bool all_locked = local.min(std::int64_t{held_.take(mine) ? 1 : 0}) == 1;
  require(all_locked, "a robust mutex could not be made",
          {.subject = "/dev/shm", .advice = "use a Linux kernel"});
}

bool Health::Held::take(Line& line) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int made = pthread_mutex_init(&line.alive, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (made == 0 && pthread_mutex_lock(&line.alive) == 0) line_ = &line;
  return line_ != nullptr;
}

Health::Held::~Held() {
  if (line_ != nullptr) pthread_mutex_unlock(&line_->alive);
}

std::size_t Health::bytes_per_rank() { return sizeof(Line); }

Health::~Health() {
  if (memory_ && std::uncaught_exceptions() > 0) report_failure();
}

void Health::check() {
  const std::int64_t now_ns = steady_ns();
  if (memory_ && now_ns >= next_node_check_ns_) {
    next_node_check_ns_ = now_ns + kNodeIntervalNs;
    check_node();
  }
  if (ask_mpi_ && now_ns >= next_job_check_ns_) {
    next_job_check_ns_ = now_ns + kJobIntervalNs;
    check_job();
  }
}

void Health::check_deaths() {
  if (memory_) check_mutexes();
  if (ask_mpi_) check_job();
}

void Health::check_node() {
  check_mutexes();
  const std::int64_t failed = line(0).failed.load(std::memory_order_acquire);
  if (failed < kNobody && failed != -(first_rank() + 1)) {
    const auto rank = static_cast<int>(-failed - 1);
    const auto place = std::ranges::find(local_ranks_, rank) - local_ranks_.begin();
    const std::string why = line(static_cast<int>(place)).why.data();
    throw Error(
        why.empty() ? fmt::format("rank {} gave up", rank) : fmt::format("rank {} gave up: {}", rank, why),
        {.subject = "communication",
         .advice = why.empty() ? "see its message" : "",
         .code = ExitCode::lost_rank});
  }
}

void Health::check_mutexes() {
  const std::int64_t failed = line(0).failed.load(std::memory_order_acquire);
  if (failed > kNobody) throw_lost(static_cast<int>(failed - 1));
  for (int peer = 0; peer < static_cast<int>(local_ranks_.size()); ++peer) {
    if (peer == local_rank_) continue;
    const int state = pthread_mutex_trylock(&line(peer).alive);
    if (state == EBUSY) continue;
    if (state == 0) {  // it has left in order, having done its part
      pthread_mutex_unlock(&line(peer).alive);
      continue;
    }
    if (state == EOWNERDEAD)
      pthread_mutex_unlock(&line(peer).alive);  // not made consistent: stays dead for all
    throw_lost(local_ranks_[static_cast<std::size_t>(peer)]);
  }
}

void Health::check_job() {
  ulfm::let_mpi_go_on();
  MPI_Group failed = MPI_GROUP_NULL;
  if (ulfm::get_failed(world_.handle(), &failed) != MPI_SUCCESS) return;
  int count = 0;
  MPI_Group_size(failed, &count);
  int world_rank = 0;
  if (count > 0) {
    MPI_Group everyone = MPI_GROUP_NULL;
    MPI_Comm_group(world_.handle(), &everyone);
    const int first = 0;
    MPI_Group_translate_ranks(failed, 1, &first, everyone, &world_rank);
    MPI_Group_free(&everyone);
  }
  MPI_Group_free(&failed);
  if (count > 0) throw_lost(first_ranks_[static_cast<std::size_t>(world_rank)]);
}

void Health::report_failure(std::optional<int> dead_rank, std::string_view why) noexcept {
  if (memory_) {
    auto& own = line(local_rank_).why;
    if (own[0] == 0) own[why.copy(own.data(), own.size() - 1)] = 0;
    std::int64_t expected = kNobody;
    const std::int64_t word = dead_rank ? *dead_rank + 1 : -(first_rank() + 1);
    line(0).failed.compare_exchange_strong(expected, word);
  }
  if (ask_mpi_) ulfm::revoke(world_.handle());
}

void Health::throw_lost(int first_rank) {
  report_failure(first_rank);
  throw Error(
      fmt::format("rank {} is gone", first_rank),
      {.subject = "communication",
       .advice =
           "look at its own output; the same command goes on from the newest checkpoint, if there is one",
       .code = ExitCode::lost_rank});
}

}  // namespace dtrain::comm
