#include "comm/in_flight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/watch/flight_recorder.hpp"
#include "comm/watch/health.hpp"
#include "comm/watch/inquiry.hpp"
#include "core/clock.hpp"
#include "core/wait_until.hpp"

namespace dtrain::comm {
std::uint64_t InFlight::add(std::unique_ptr<Operation> operation) {
  entries_.push_back({.operation = std::move(operation)});
  if (Entry& entry = entries_.back(); records(entry))
    entry.flight = recorder_->queued(*entry.operation->label());
  return end() - 1;
}

Operation* InFlight::only() const {
  Operation* found = nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.operation) continue;
    if (found != nullptr) return nullptr;
    found = entry.operation.get();
  }
  return found;
}

void InFlight::start_newest() {
  const void* lane = entries_.back().operation->lane();
  const bool lane_is_busy =
      lane != nullptr && std::any_of(entries_.begin(), entries_.end() - 1, [lane](const Entry& entry) {
        return entry.operation && entry.operation->lane() == lane;
      });
  if (!lane_is_busy && advance(entries_.back())) drop_completed();
}

bool InFlight::advance_all() {
  bool completed = false;
  busy_lanes_.clear();
  for (Entry& entry : entries_) {
    if (!entry.operation) continue;
    const void* lane = entry.operation->lane();
    if (lane != nullptr && std::find(busy_lanes_.begin(), busy_lanes_.end(), lane) != busy_lanes_.end())
      continue;
    if (advance(entry)) {
      completed = true;
    } else if (lane != nullptr) {
      busy_lanes_.push_back(lane);
    }
  }
  drop_completed();
  return completed;
}

/// One attempt; true when the operation completed in it.
bool InFlight::advance(Entry& entry) {
  if (entry.start_ns == 0) {
    entry.start_ns = steady_ns();
    entry.start_s = time_.look(entry.start_ns);
    if (records(entry)) recorder_->started(entry.flight, entry.start_ns);
  }
  try {
    if (!entry.operation->advance()) return false;
  } catch (const LibraryError& error) {
    fail(cause_of(error, kNoticeS));
    throw Error(*failure_);
  } catch (const Error& error) {
    fail(cause_of(error, 0));
    throw Error(*failure_);
  }
  complete(entry);
  return true;
}

/// A death that explains the error, if one is seen in that time.
Error InFlight::cause_of(const Error& error, double within_s) {
  Error cause = error;
  wait_until(steady_s() + within_s, std::chrono::milliseconds(5), [&] {
    try {
      health_.check_deaths();
      return false;
    } catch (const Error& death) {
      cause = death;
      return true;
    }
  });
  return cause;
}

void InFlight::complete(Entry& entry) {
  const std::int64_t now_ns = steady_ns();
  if (records(entry)) recorder_->ended(entry.flight, now_ns);
  sink_.overlapped(Phase::communication, entry.operation->name(), entry.start_ns, now_ns);
  const std::int64_t sent = entry.operation->bytes_sent();
  const std::int64_t received = entry.operation->bytes_received();
  if (sent != 0 || received != 0) sink_.moved(sent, received);
  entry.operation.reset();
}

void InFlight::drop_completed() {
  while (!entries_.empty() && !entries_.front().operation) {
    entries_.pop_front();
    ++base_;
  }
}

void InFlight::fail(const Error& error) noexcept {
  health_.report_failure({}, error.what());
  drop(error);
}

void InFlight::drop(const Error& error) noexcept {
  if (!failure_) failure_.emplace(error);
  for (Entry& entry : entries_) entry.operation.reset();  // now: their memory goes as the error unwinds
}

void InFlight::check_limits() {
  ulfm::let_mpi_go_on();  // also while this rank waits for nothing but the other ranks of its node
  try {
    health_.check();
    const double now_s = time_.look();
    if (timeout_s_ <= 0) return;
    const double oldest_start_s = now_s - limit_s();
    for (const Entry& entry : entries_) {
      if (!entry.operation || entry.start_ns == 0 || entry.start_s > oldest_start_s) continue;
      throw overdue(*entry.operation);
    }
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

double InFlight::limit_s() const {
  return allowance_ ? std::max(timeout_s_, allowance_->load(std::memory_order_relaxed)) : timeout_s_;
}

Error InFlight::overdue(const Operation& operation) const {
  std::string why = operation.missing();
  if (recorder_ != nullptr && operation.label() != nullptr) {
    auto findings = recorder_->findings(*operation.label(), limit_s());
    if (inquiry_ != nullptr) {
      for (auto& finding : inquiry_->ask(*operation.label(), limit_s()))
        findings.push_back(std::move(finding));
    }
    if (!findings.empty()) why = fmt::format("{}", fmt::join(findings, "; "));
  }
  if (why.empty()) why = "a peer has not answered";
  return {fmt::format("not complete after {} s; {}", limit_s(), why),
          {.subject = operation.describe(),
           .advice = "look at what those ranks do, or raise --watchdog",
           .code = ExitCode::lost_rank}};
}

}  // namespace dtrain::comm
