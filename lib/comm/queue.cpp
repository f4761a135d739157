#include "comm/queue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/flight_recorder.hpp"
#include "comm/health.hpp"
#include "comm/inquiry.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr int kPollsPerClockRead = 16;
constexpr double kLongestSleepS = 2e-3;  // how late a wait may look for dead peers

struct Entry {
  std::unique_ptr<Operation> operation;  ///< Empty once complete, or after a failure.
  std::int64_t start_ns = 0;             ///< 0 until it was started.
  std::uint64_t flight = 0;              ///< Of the recorder.
};

}  // namespace

struct Queue::State {
  State(const QueueConfig& queue_config, SpanSink& span_sink, Health& peers, FlightRecorder* flights,
        const Inquiry* others)
      : config(queue_config), sink(span_sink), health(peers), recorder(flights), inquiry(others) {}

  bool done(std::uint64_t sequence) const {
    return sequence < base || (!failure && !entries[static_cast<std::size_t>(sequence - base)].operation);
  }
  /// Where no thread drives, one thread at a time uses the queue: a lock would cost a tenth of a small
  /// all_reduce.
  std::unique_lock<std::mutex> lock() const {
    if (config.drive == Drive::inline_) return {mutex, std::defer_lock};
    ++waiting;
    std::unique_lock held(mutex);
    --waiting;
    return held;
  }
  void throw_if_failed() const {
    if (failure) throw Error(*failure);
  }
  bool records(const Entry& entry) const {
    return recorder != nullptr && entry.operation->label() != nullptr;
  }
  Error overdue(const Operation& operation) const;
  bool advance(Entry& entry);
  bool advance_all();
  void drop_completed();
  void complete(Entry& entry);
  [[noreturn]] void fail_by(const Error& error);
  void record_failure(const Error& error) noexcept;

  void check_limits();
  void give_core_away();
  void wait_inline(std::uint64_t sequence);
  void run_thread();

  const QueueConfig config;
  SpanSink& sink;
  Health& health;
  FlightRecorder* recorder;
  const Inquiry* inquiry;
  mutable std::mutex mutex;
  mutable std::atomic<int> waiting = 0;  ///< Threads for the lock, which the driver holds nearly always.
  std::condition_variable changed;
  std::deque<Entry> entries;
  std::uint64_t base = 0;  ///< Sequence number of entries.front().
  std::vector<const void*> busy_lanes;
  std::optional<Error> failure;
  bool stop = false;
  std::thread driver;
};

/// One attempt; true when the operation completed in it. A failure fails the whole queue.
bool Queue::State::advance(Entry& entry) {
  if (entry.start_ns == 0) {
    entry.start_ns = steady_ns();
    if (records(entry)) recorder->started(entry.flight, entry.start_ns);
  }
  try {
    if (!entry.operation->advance()) return false;
  } catch (const Error& error) {
    fail_by(error);
  }
  complete(entry);
  return true;
}

void Queue::State::complete(Entry& entry) {
  const std::int64_t now_ns = steady_ns();
  if (records(entry)) recorder->ended(entry.flight, now_ns);
  sink.overlapped(Phase::communication, entry.operation->name(), entry.start_ns, now_ns);
  const std::int64_t sent = entry.operation->bytes_sent();
  const std::int64_t received = entry.operation->bytes_received();
  if (sent != 0 || received != 0) sink.moved(sent, received);
  entry.operation.reset();
}

/// Moves on whatever may run: of each lane its first incomplete operation. True if any completed.
bool Queue::State::advance_all() {
  bool completed = false;
  busy_lanes.clear();
  for (Entry& entry : entries) {
    if (!entry.operation) continue;
    const void* lane = entry.operation->lane();
    if (lane != nullptr && std::find(busy_lanes.begin(), busy_lanes.end(), lane) != busy_lanes.end())
      continue;
    if (advance(entry)) {
      completed = true;
    } else if (lane != nullptr) {
      busy_lanes.push_back(lane);
    }
  }
  drop_completed();
  return completed;
}

void Queue::State::drop_completed() {
  while (!entries.empty() && !entries.front().operation) {
    entries.pop_front();
    ++base;
  }
}

/// A death that explains the error is told instead of it.
void Queue::State::fail_by(const Error& error) {
  try {
    health.check_deaths();
    record_failure(error);
  } catch (const Error& cause) {
    record_failure(cause);
  }
  throw Error(*failure);
}

void Queue::State::record_failure(const Error& error) noexcept {
  if (!failure) failure.emplace(error);
  health.report_failure({}, error.what());
  for (Entry& entry : entries) entry.operation.reset();  // now: their memory goes as the error unwinds
  changed.notify_all();
}

Error Queue::State::overdue(const Operation& operation) const {
  std::string why = operation.missing();
  if (recorder != nullptr && operation.label() != nullptr) {
    auto findings = recorder->findings(*operation.label(), config.timeout_s);
    if (inquiry != nullptr) {
      for (auto& finding : inquiry->ask(*operation.label(), config.timeout_s))
        findings.push_back(std::move(finding));
    }
    if (!findings.empty()) why = fmt::format("{}", fmt::join(findings, "; "));
  }
  if (why.empty()) why = "a peer has not answered";
  return {fmt::format("not complete after {} s; {}", config.timeout_s, why),
          {.subject = operation.describe(),
           .advice = "look at what those ranks do, or raise --watchdog",
           .code = ExitCode::lost_rank}};
}

/// Throws when a peer is gone or an operation takes longer than allowed.
void Queue::State::check_limits() {
  try {
    health.check();
    if (config.timeout_s <= 0) return;
    const std::int64_t oldest_start = steady_ns() - static_cast<std::int64_t>(config.timeout_s * 1e9);
    for (const Entry& entry : entries) {
      if (!entry.operation || entry.start_ns == 0 || entry.start_ns > oldest_start) continue;
      throw overdue(*entry.operation);
    }
  } catch (const Error& error) {
    record_failure(error);
    throw;
  }
}

/// Sleeps where one operation alone is awaited that can be told when its peers have come; yields otherwise.
void Queue::State::give_core_away() {
  Operation* only = nullptr;
  for (const Entry& entry : entries) {
    if (!entry.operation) continue;
    if (only != nullptr) {
      only = nullptr;
      break;
    }
    only = entry.operation.get();
  }
  if (only == nullptr || !only->sleep(kLongestSleepS)) ::sched_yield();
}

/// Polls without yielding for a moment where cores are plenty, then leaves the core to others between polls.
void Queue::State::wait_inline(std::uint64_t sequence) {
  const std::int64_t spin_ns = static_cast<std::int64_t>(config.spin_s * 1e9);
  std::int64_t spin_until_ns = 0;  // read late: short waits end before
  bool spins = spin_ns > 0;
  for (int polls = 1; !done(sequence); ++polls) {
    if (advance_all()) continue;
    if (spins) {
      _mm_pause();  // also keeps the polls from slowing the write they wait for
      if (polls % kPollsPerClockRead != 0) continue;
      const std::int64_t now_ns = steady_ns();
      if (spin_until_ns == 0) spin_until_ns = now_ns + spin_ns;
      spins = now_ns < spin_until_ns;
      continue;
    }
    check_limits();
    give_core_away();
  }
}

void Queue::State::run_thread() {
  std::unique_lock lock(mutex);
  while (!stop) {
    if (failure || entries.empty()) {
      changed.wait(lock);
      continue;
    }
    try {
      if (advance_all()) {
        changed.notify_all();
      } else {
        check_limits();
      }
    } catch (const Error&) {
      continue;  // recorded; those who wait throw it
    }
    lock.unlock();
    do {
      ::sched_yield();
    } while (waiting > 0);  // who has been waiting goes first: a mutex is given to whoever is quickest
    lock.lock();
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
    const std::unique_lock lock = state_->lock();
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->driver.joinable()) state_->driver.join();
}

Handle Queue::submit(std::unique_ptr<Operation> operation) {
  State& state = *state_;
  const std::unique_lock lock = state.lock();
  state.throw_if_failed();
  const std::uint64_t sequence = state.base + state.entries.size();
  const void* lane = operation->lane();
  const bool lane_is_busy =
      lane != nullptr && std::any_of(state.entries.begin(), state.entries.end(), [lane](const Entry& entry) {
        return entry.operation && entry.operation->lane() == lane;
      });
  state.entries.push_back({.operation = std::move(operation)});
  if (Entry& entry = state.entries.back(); state.records(entry)) {
    entry.flight = state.recorder->queued(*entry.operation->label());
  }
  if (state.config.drive == Drive::thread) {
    state.changed.notify_all();
  } else if (!lane_is_busy && state.advance(state.entries.back())) {
    state.drop_completed();
  }
  return Handle(this, sequence);
}

void Queue::progress() {
  State& state = *state_;
  const std::unique_lock lock = state.lock();
  state.throw_if_failed();
  if (state.config.drive == Drive::thread || state.entries.empty()) return;
  const ScopedSpan span(state.sink, Phase::exposed_communication, "progress");
  if (!state.advance_all()) state.check_limits();
}

void Queue::wait(std::uint64_t sequence) {
  State& state = *state_;
  std::unique_lock lock = state.lock();
  if (state.done(sequence)) return;
  state.throw_if_failed();
  const ScopedSpan span(state.sink, Phase::exposed_communication, "wait");
  if (state.config.drive == Drive::inline_) {
    state.wait_inline(sequence);
    return;
  }
  state.changed.wait(lock, [&] { return state.failure || state.done(sequence); });
  if (!state.done(sequence)) state.throw_if_failed();
}

void Queue::follow(std::uint64_t sequence) {
  State& state = *state_;
  std::unique_lock lock = state.lock();
  while (!state.done(sequence)) {
    state.throw_if_failed();
    const auto operation = state.entries[static_cast<std::size_t>(sequence - state.base)].operation.get();
    const auto how = operation->follow();
    if (how == Operation::Follow::ordered) return;
    if (how == Operation::Follow::when_complete) break;
    if (state.config.drive == Drive::inline_) {
      if (!state.advance_all()) state.check_limits();
      continue;
    }
    lock.unlock();
    ::sched_yield();
    lock = state.lock();
  }
  if (lock.owns_lock()) lock.unlock();
  wait(sequence);
}

void Queue::drain() {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  {
    const std::unique_lock lock = state_->lock();
    first = state_->base;
    last = first + state_->entries.size();
  }
  for (std::uint64_t sequence = first; sequence < last; ++sequence) wait(sequence);
}

bool Queue::idle() const {
  const std::unique_lock lock = state_->lock();
  return std::none_of(state_->entries.begin(), state_->entries.end(),
                      [](const Entry& entry) { return entry.operation != nullptr; });
}

bool Queue::failed() const {
  const std::unique_lock lock = state_->lock();
  return state_->failure.has_value();
}

void Queue::fail(std::string_view reason) {
  const std::unique_lock lock = state_->lock();
  state_->record_failure(
      Error(reason,
            {.subject = "communication", .advice = "see the earlier message", .code = ExitCode::lost_rank}));
}

bool Queue::done(std::uint64_t sequence) const {
  const std::unique_lock lock = state_->lock();
  return state_->done(sequence);
}

bool Handle::done() const { return queue_ == nullptr || queue_->done(sequence_); }

void Handle::follow() const {
  if (queue_ != nullptr) queue_->follow(sequence_);
}

void Handle::wait() const {
  if (queue_ != nullptr) queue_->wait(sequence_);
}

}  // namespace dtrain::comm
