#include "comm/queue.hpp"

#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/changes.hpp"
#include "comm/in_flight.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr int kPollsPerClockRead = 16;
// Between two looks of a driver where cores are short. Some operations wait for long, such as a server's for
// its next request: looking all the time would take the core from those that compute.
constexpr std::chrono::microseconds kRest{20};
constexpr double kLongestSleepS = 2e-3;  // how late a wait may look for dead peers
// Looks, each after others have had the core, before a wait sleeps: peers that share the cores have often
// come by then. An all_reduce of 4 KiB by 4 ranks on 2 cores takes 13 to 29 us so, and 77 to 100 us asleep
// (perf/results/all_reduce/looks-2026-11-26.csv).
constexpr int kLooksBeforeSleep = 16;

Error given_up(std::string_view reason) {
  return {reason,
          {.subject = "communication", .advice = "see the earlier message", .code = ExitCode::lost_rank}};
}

}  // namespace

struct Queue::State {
  State(const QueueConfig& queue_config, SpanSink& span_sink, Health& health, FlightRecorder* recorder,
        const Inquiry* inquiry)
      : config(queue_config),
        sink(span_sink),
        in_flight(config.timeout_s, config.allowance, sink, health, recorder, inquiry) {}

  /// Where no thread drives, one thread at a time uses the queue: a lock would cost a tenth of a small
  /// all_reduce.
  std::unique_lock<std::mutex> lock() const {
    if (config.drive == Drive::inline_) return {mutex, std::defer_lock};
    ++waiting;
    std::unique_lock held(mutex);
    --waiting;
    return held;
  }
  /// Lets go of the lock until something changes. No condition variable: a woken thread must ask for the lock
  /// in turn, as all do, or the driver takes it first again and again.
  void await_change(std::unique_lock<std::mutex>& held) {
    const std::uint32_t seen = changes.seen();
    held.unlock();
    changes.wait(seen);
    held = lock();
  }
  void give_core_away(int looks);
  void wait_inline(std::uint64_t sequence);
  void run_thread();

  const QueueConfig config;
  SpanSink& sink;
  mutable std::mutex mutex;  ///< Of what follows, where a thread drives.
  InFlight in_flight;
  bool stop = false;
  mutable std::atomic<int> waiting = 0;  ///< Threads for the lock, which the driver holds nearly always.
  Changes changes;                       ///< What a thread may wait for.
  std::thread driver;
};

/// After so many `looks` sleeps where one operation alone is awaited that can be told when its peers have
/// come; yields otherwise.
void Queue::State::give_core_away(int looks) {
  Operation* const only = looks > kLooksBeforeSleep ? in_flight.only() : nullptr;
  if (only == nullptr || !only->sleep(kLongestSleepS)) ::sched_yield();
}

/// Polls without yielding for a moment where cores are plenty, then leaves the core to others between polls.
void Queue::State::wait_inline(std::uint64_t sequence) {
  const std::int64_t spin_ns = static_cast<std::int64_t>(config.spin_s * 1e9);
  std::int64_t spin_until_ns = 0;  // read late: short waits end before
  bool spins = spin_ns > 0;
  for (int polls = 1; !in_flight.done(sequence); ++polls) {
    if (in_flight.advance_all()) continue;
    if (spins) {
      _mm_pause();  // also keeps the polls from slowing the write they wait for
      if (polls % kPollsPerClockRead != 0) continue;
      const std::int64_t now_ns = steady_ns();
      if (spin_until_ns == 0) spin_until_ns = now_ns + spin_ns;
      spins = now_ns < spin_until_ns;
      continue;
    }
    in_flight.check_limits();
    give_core_away(polls);
  }
}

void Queue::State::run_thread() {
  std::unique_lock held = lock();
  while (!stop) {
    if (in_flight.idle()) {
      await_change(held);
      continue;
    }
    bool moved = false;
    try {
      moved = in_flight.advance_all();
      if (moved) {
        changes.announce();
      } else {
        in_flight.check_limits();
      }
    } catch (const Error&) {  // kept; the waiting threads throw it
      changes.announce();
      continue;
    }
    held.unlock();
    if (!moved && config.spin_s == 0) std::this_thread::sleep_for(kRest);
    do {
      ::sched_yield();
    } while (waiting > 0);  // they go first: a mutex is given to the quickest thread
    held.lock();
  }
}

Queue::Queue(const QueueConfig& config, SpanSink& sink, Health& health, FlightRecorder* recorder,
             const Inquiry* inquiry)
    : state_(std::make_unique<State>(config, sink, health, recorder, inquiry)) {
  if (config.drive == Drive::thread)
    state_->driver = std::thread([state = state_.get()] { state->run_thread(); });
}

Queue::~Queue() {
  {
    const std::unique_lock held = state_->lock();
    state_->stop = true;
    state_->changes.announce();
  }
  if (state_->driver.joinable()) state_->driver.join();
}

Handle Queue::submit(std::unique_ptr<Operation> operation) {
  State& state = *state_;
  const std::unique_lock held = state.lock();
  state.in_flight.throw_if_failed();
  const Handle handle(this, state.in_flight.add(std::move(operation)));
  if (state.config.drive == Drive::thread) {
    state.changes.announce();
  } else {
    state.in_flight.start_newest();
  }
  return handle;
}

void Queue::progress() {
  State& state = *state_;
  const std::unique_lock held = state.lock();
  state.in_flight.throw_if_failed();
  if (state.config.drive == Drive::thread || state.in_flight.idle()) return;
  const ScopedSpan span(state.sink, Phase::exposed_communication, "progress");
  if (!state.in_flight.advance_all()) state.in_flight.check_limits();
}

void Queue::wait(std::uint64_t sequence) {
  State& state = *state_;
  std::unique_lock held = state.lock();
  if (state.in_flight.done(sequence)) return;
  state.in_flight.throw_if_failed();
  const ScopedSpan span(state.sink, Phase::exposed_communication, "wait");
  if (state.config.drive == Drive::inline_) {
    state.wait_inline(sequence);
    return;
  }
  while (!state.in_flight.done(sequence)) {
    state.in_flight.throw_if_failed();
    state.await_change(held);
  }
}

void Queue::follow(std::uint64_t sequence) {
  State& state = *state_;
  std::unique_lock held = state.lock();
  while (!state.in_flight.done(sequence)) {
    state.in_flight.throw_if_failed();
    const auto how = state.in_flight.operation(sequence).follow();
    if (how == Operation::Follow::ordered) return;
    if (how == Operation::Follow::when_complete) break;
    if (state.config.drive == Drive::inline_) {
      if (!state.in_flight.advance_all()) state.in_flight.check_limits();
      continue;
    }
    held.unlock();
    ::sched_yield();
    held = state.lock();
  }
  if (held.owns_lock()) held.unlock();
  wait(sequence);
}

void Queue::drain() {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  {
    const std::unique_lock held = state_->lock();
    first = state_->in_flight.begin();
    last = state_->in_flight.end();
  }
  for (std::uint64_t sequence = first; sequence < last; ++sequence) wait(sequence);
}

bool Queue::idle() const {
  const std::unique_lock held = state_->lock();
  return state_->in_flight.idle();
}

bool Queue::failed() const {
  const std::unique_lock held = state_->lock();
  return state_->in_flight.failed();
}

void Queue::fail(std::string_view reason) {
  const std::unique_lock held = state_->lock();
  state_->in_flight.fail(given_up(reason));
  state_->changes.announce();
}

void Queue::drop(std::string_view reason) {
  const std::unique_lock held = state_->lock();
  state_->in_flight.drop(given_up(reason));
  state_->changes.announce();
}

bool Queue::done(std::uint64_t sequence) const {
  const std::unique_lock held = state_->lock();
  return state_->in_flight.done(sequence);
}

bool Handle::done() const { return queue_ == nullptr || queue_->done(sequence_); }

void Handle::follow() const {
  if (queue_ != nullptr) queue_->follow(sequence_);
}

void Handle::wait() const {
  if (queue_ != nullptr) queue_->wait(sequence_);
}

}  // namespace dtrain::comm
